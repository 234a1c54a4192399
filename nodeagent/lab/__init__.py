"""Clusters made of network namespaces on this machine, for tests, the demo and `nodeagent lab`.

    topology  who exists: nodes, their pods, hosts outside             (values)
    wiring    topology → `ip` commands per namespace                   (pure)
    namespaces  create, enter, remove, sweep; only names that are ours
    world     the context manager that builds and removes all of it
    member    what a test holds: serve, ask, hold, load, ping, sniff from one namespace
    messages  what a member and its actor say to each other
    actor     the process in each namespace that carries it out: serve (servers), dial (clients), tasks (what goes
              on in the background), ping, and sctp for kernels without it
    answers   what came back, and whether it was spread fairly (pure)
    process   the agent (any command) in a node's namespace
    objects   Services and EndpointSlices as manifest files
    cluster   a world whose node runs the agent on such files
    api_cluster  a world whose node follows an API server on a host of its own; api_client: requests to that
    live/     labs that outlive the command that makes them: `nodeagent lab`
    bridge_wiring  as wiring, around a bridge with routed pod ranges; latencies: counts and percentiles (pure)
    demo      a live lab in one story

Needs root, iproute2 and util-linux. Nothing is changed in the namespace of the caller, and nothing stays: each actor
removes the name of its namespace when its creator ends, however that happens, and the next world sweeps the rest.
"""
