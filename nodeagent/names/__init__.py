"""Cluster DNS: names of Services, answered on the node from what the agent knows.

`wire` is the message format, `zone` what a name means, `server` the process that answers, `feed` how it receives
changes. Nothing here reads the API; the objects come from the agent.
"""
