"""Loops that bring the store from what it says to what it should say. Each is fed by the store's own events.

`loop` is the machinery; every other module decides one thing and says in its first line what.
"""
