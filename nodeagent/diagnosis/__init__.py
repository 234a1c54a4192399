"""Answers to "why": of a Service, a connection, a node. It looks at what the proxy made; the proxy knows nothing of it.

explain/    why a Service works on this node or not
trace/      a connection through our rules, those of others and the routes
checks/     settings, hook order and other programs of a node, judged as values
tables/     our tables: what they should hold, what they hold, and how that reads
simulator/  a packet through rules as the kernel has them
"""
