"""The published experiments run again, at a size that fits on one machine, next to the published figures."""
