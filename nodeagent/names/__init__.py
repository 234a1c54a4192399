"""Cluster DNS: the node answers names of Services from what the agent knows.

`zone` decides what a name means, `server` is the process that answers, `feed` sends it changes, `upstream` asks other
resolvers. Nothing here reads the API: the agent hands the objects over.
"""
