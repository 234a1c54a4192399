"""Decides when things happen, and in which order: the change queue, pacing, the sync pass.

Knows the store, the drivers and the observers only through the Protocols in `needed_parts`. State decides, never history:
the queue holds keys, and a pass reads the latest snapshot.
"""
