"""`nodeagent lab`: a cluster on this machine that goes on by itself until it is taken down.

    net/          network namespaces with links, hosts that act in them    (also below the tests)

    plan          a few numbers → who exists, with which addresses      (pure)
    directory     where a lab keeps its files; who holds it; sweeping what a killed one left
    supervisor    the one process of a lab: it builds it, keeps it, answers on a socket, takes it down
    cluster       what the supervisor holds: the world, the control plane, agents, pods
    control_plane API servers and, where they are several, etcd; certificates: what members and clients show
    patience      waiting for what shows that something has happened
    registration  all that as API objects
    replies       what the supervisor answers
    status        how it is now; programming: which endpoints are in the kernels
    caller        the other end of the socket: what commands use
    requests      what both say to each other
    api           requests to the API server from inside the lab; objects: what is sent
    load          connections from everywhere to a service, and what became of them
    faults        what can be broken, what shows that it is, how it is put right; control_faults: of control planes
    fault_kinds   which faults there are, whom each is on, what it must not cost
    changes       Service changes all the time, from the write until every node serves them
    trial         a fault under load; verdict: what that cost (pure)
    worker        the one thread in which the supervisor does what blocks
    tables        all that as text
    forward       TCP from one namespace into another: a kubectl outside, an API server outside
    report/       a run of faults as pictures and figures
    page/         all that in a browser, live
    slow_link     a link on which frames take their time; full_conntrack: a full connection table
    demo          a lab in one story: `make demo`

One supervisor owns everything that lives. Its actors and programs end with it, however it ends, and the record lock on
its directory says without any pid file whether it is there.
"""
