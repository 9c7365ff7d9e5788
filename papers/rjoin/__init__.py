"""RJoin: Idreos, Liarou, Koubarakis, "Continuous Multi-Way Joins over Distributed Hash Tables", EDBT 2008."""
