"""Network namespaces of this machine as hosts of a cluster: for `nodeagent lab`, the demo and tests.

    topology  the members: nodes, their pods, hosts outside            (values)
    wiring    a host behind a link of its own: `ip` commands           (pure)
    bridge_wiring  topology → `ip` commands per namespace: a bridge, routed pod ranges (pure)
    pod_wiring  pods behind a bridge of their node, or each with its own link        (pure)
    prefixes  addresses with their prefix lengths                      (pure)
    network_namespaces  create, enter, remove, sweep; only names that are ours
    world     the context manager that builds and removes all of it
    fork_server  processes that start with their modules imported
    member    a host from the caller's side: serve, ask, hold, load, ping in one namespace
    actor_messages      the messages between a member and its actor
    actor     the process in each namespace that carries them out: echo_servers, dial (clients), tasks (in the
              background), ping
    survey    the answers, and whether they were spread fairly (pure); latencies: counts and percentiles (pure)
    namespace_process   the agent (any command) in a node's namespace

Needs root, iproute2 and util-linux. It changes nothing in the caller's namespace, and nothing is left behind: each
actor removes the name of its namespace when its creator ends in any way, and the next world removes the rest.
"""
