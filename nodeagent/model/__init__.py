"""Frozen values that are passed through the program. No I/O, no decisions. Pure.

Imports nothing of nodeagent outside this package; every other package may import it.
"""
