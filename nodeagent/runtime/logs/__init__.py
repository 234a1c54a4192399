"""Log lines of all processes: their format, and how often one is repeated."""
