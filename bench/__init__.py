"""Benchmarks of Watersmeet against its peers, side by side on one machine.

Not part of the installed package and not a test: it prints ratios, with seed, rows, cores and
versions, and says for each demand whether it is met. `python -m bench --help` is the way in.
"""
