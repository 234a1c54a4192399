"""Asks the agents of all nodes, through the API server or the lab, and prints one result.

`agent_pods` finds the agents. `asking` runs a command beside each, with limits on time and on how many run at once.
`cluster_question` prints one verdict, `remote_trace` a trace, `cluster_bundle` writes a bundle. `diagnosis/all_nodes`
interprets the answers. Decision: docs/decisions/0102-agents-are-asked-in-their-pods.md.
"""
