"""Published experiments, run again on one machine and shown next to the published figures.

Each paper has a folder with its algorithms as published and its experiments: `adaptive`, `hypercube`, `hybrid`,
`state`. No paper imports another; `shared` has what they have in common. All of them import the package, never the
other way.
"""
