"""Many continuous queries over the same streams, as data: one streaming query, and a row for each of the users' own.

    text -> language -> template and constants -> catalogue -> forest -> walk -> answers

Everything here is pure: no Spark, no file, no clock. `docs/adr/014-queries-as-data.md` says why a query is a row.
"""
