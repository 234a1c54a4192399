"""Log lines of all processes: their form, and how often one is said."""
