"""Network namespaces of this machine as hosts of a cluster: for `nodeagent lab`, the demo and tests.

    topology  who exists: nodes, their pods, hosts outside             (values)
    wiring    topology → `ip` commands per namespace                   (pure)
    bridge_wiring  as wiring, around a bridge with routed pod ranges   (pure)
    pod_wiring  pods behind a bridge of their node, or each with a link of its own   (pure)
    prefixes  addresses with their prefix lengths                      (pure)
    namespaces  create, enter, remove, sweep; only names that are ours
    world     the context manager that builds and removes all of it
    fork_server  processes that begin with their modules imported
    member    what is held of a host: serve, ask, hold, load, ping, sniff from one namespace
    requests  what a member and its actor say to each other
    actor     the process in each namespace that carries it out: servers, dial (clients), tasks (what goes
              on in the background), ping, and sctp for kernels without it
    answers   what came back, and whether it was spread fairly (pure); latencies: counts and percentiles (pure)
    process   the agent (any command) in a node's namespace

Needs root, iproute2 and util-linux. Nothing is changed in the namespace of the caller, and nothing stays: each actor
removes the name of its namespace when its creator ends, however that happens, and the next world sweeps the rest.
"""
