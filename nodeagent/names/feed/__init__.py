"""How the DNS process is started and receives changes.

`feed_messages` has the messages on the unix socket between agent and process, `dns_supervisor` the agent's end of it.
"""
