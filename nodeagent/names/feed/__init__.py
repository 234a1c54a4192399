"""How the process that answers comes to life and learns of changes.

`messages` is what is said on the unix socket between the two, `supervisor` the agent's end of it.
"""
