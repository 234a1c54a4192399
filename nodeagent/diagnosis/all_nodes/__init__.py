"""Combines the answers of the agents of all nodes into one verdict (pure)."""
