"""Figures 3 to 7 of Qiu, Papadias, Yi: Streaming HyperCube (EDBT 2019)."""
