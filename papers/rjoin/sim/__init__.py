"""RJoin at the paper's sizes, without events: hops and loads counted with arrays.

The algorithm is that of `papers.rjoin.node` with rows in the order of publication and no delays; a test holds the two to
each other, node by node. Every node keeps attribute-level rows without end, so that all strategies give all answers.
"""
