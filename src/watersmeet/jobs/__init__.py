"""Joins that run without a program: a job file says what to read, how to join and where to write.

`model` and `file` turn TOML into frozen facts, with the help of `secrets` and `checkpoint`; none of these imports
Spark. `session`, `frames`, `preflight` and `runner` do, and serve both `watersmeet run` and the demo.
"""
