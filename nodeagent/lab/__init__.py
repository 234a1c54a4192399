"""Clusters made of network namespaces on this machine, for tests, the demo and `nodeagent lab`.

    topology  who exists: nodes, their pods, hosts outside             (values)
    wiring    topology → `ip` commands per namespace                   (pure)
    namespaces  create, enter, remove, sweep; only names that are ours
    world     the context manager that builds and removes all of it
    member    what a test holds: serve, ask, hold, load, ping, sniff from one namespace
    actor     the process in each namespace that does so; messages is what the two say to each other
    process   the agent (any command) in a node's namespace
    objects   Services and EndpointSlices as manifest files

Needs root, iproute2 and util-linux. Nothing is changed in the namespace of the caller, and nothing stays: each actor
removes the name of its namespace when its creator ends, however that happens, and the next world sweeps the rest.
"""
