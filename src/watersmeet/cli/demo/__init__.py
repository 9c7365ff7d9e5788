"""The demo: a simulated market, joined live and checked. `command` runs it; each other file is one part of it."""
