"""`nodeagent lab`: a cluster on this machine that runs in the background until it is taken down.

    net/          network namespaces with links, hosts that act in them    (also used by tests)
    lab_plan      a few numbers → members and their addresses      (pure)
    directory     the files of a lab, the lock on it, removal of what a killed lab left
    supervisor    the one process of a lab: builds it, keeps it, answers on a socket, takes it down
    cluster       what the supervisor holds: the world, the control plane, agents, pods
    control_plane API servers and, if there are several, etcd; certificates: for members and clients
    patience      waiting until something is seen to have happened
    registration  nodes, pods and the service as API objects
    supervisor_replies     the supervisor's answers
    lab_status    the present state; programming: which endpoints are in the kernels
    caller        the other end of the socket, used by commands
    supervisor_messages    the messages between both
    api           requests to the API server from inside the lab; lab_objects: the objects that are sent
    load_generator         connections from everywhere to a service, and their results
    faults        what can be broken, how that is checked and repaired; control_faults: of control planes
    fault_kinds   the faults: their targets, and what each must not cost
    service_changes        Service changes all the time, from the write until every node serves them
    trial         a fault under load; fault_verdict: what it cost (pure)
    lab_thread    the one thread for the supervisor's blocking work
    report_tables these results as text
    forward       TCP from one namespace into another: a kubectl outside, an API server outside
    report/       a run of faults as plots and numbers
    page/         the lab in a browser, live
    slow_link     a link that delays frames; full_conntrack: a full connection table
    demo          a lab in one story: `make demo`

One supervisor owns all processes. Its actors and programs end with it, however it ends; the record lock on its
directory shows whether it runs, without a pid file.
"""
