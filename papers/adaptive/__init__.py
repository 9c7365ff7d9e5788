"""Table 2 and Figures 5a to 5l of Elseidy, Elguindy, Vitorovic, Koch: Scalable and Adaptive Online Joins (VLDB 2014)."""
