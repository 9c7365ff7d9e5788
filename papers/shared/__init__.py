"""What the papers share: exhibits and their display, TPC-H data, timed runs on Spark."""
