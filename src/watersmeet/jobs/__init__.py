"""Joins that run by themselves: a job file says what to read, how to join, where to write.

`model` and `file` turn TOML into frozen facts, `secrets` and `checkpoint` help them; none of these imports
Spark. `session`, `frames`, `preflight` and `runner` do: they are what `watersmeet run` and the demo share.
"""
