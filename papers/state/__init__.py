"""Figures 6, 7, 9 to 12, 14 to 17, 20 and 21 of Liu, Rundensteiner: Adapting State-Intensive Non-Blocking Queries over
Distributed Environments (WPI-CS-TR-05-04, 2005)."""
