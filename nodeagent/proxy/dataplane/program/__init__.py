"""The rules of the table (pure): sets and their types, chains, and how a packet finds its endpoint.

They are the same for every Service. Reading order: schema.py (the sets), program.py (the chains), picking.py.
"""
