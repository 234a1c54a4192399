"""The command line: one module per command, over the parts that do the work."""
