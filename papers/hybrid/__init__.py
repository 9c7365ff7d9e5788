"""Figures 3, 6, 8, 9, 10a to 10d and 11 of Naeem, Dobbie, Weber: HYBRIDJOIN (2010)."""
