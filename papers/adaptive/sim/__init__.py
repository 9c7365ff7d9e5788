"""Simulated clusters, to run planners and protocols at sizes and under orders of events that no test bed gives.

`epochs` runs the joiners' protocol message by message (Elseidy et al. 2014, Alg. 3). `grid` and `hash` run whole
streams through a cost model (its section 5). Nothing here reads a clock or draws by itself: delays, keys and
arrivals are the caller's.
"""
