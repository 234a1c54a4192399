"""Asks the agents of all nodes, through the API server or the lab, and shows what they say together.

`agent_pods` finds the agents, `asking` asks them, so many at a time and no longer than it may take. `cluster_question` prints one
verdict, `remote_trace` and `cluster_bundle` do what their names say. What answers mean is decided in `diagnosis/all_nodes`. Why this way: docs/decisions/0102-agents-are-asked-in-their-pods.md.
"""
