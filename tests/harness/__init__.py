"""What tests of several rooms hold: clusters whose agents and API servers they start, and objects to give them.

    objects       Services, EndpointSlices and Nodes with sane defaults, and manifests of them
    cluster       a world whose `node-a` runs the agent on a directory of manifests
    serving_node  as cluster; what is applied is in force when the call returns
    uninterrupted traffic to one service of a cluster, of which nothing may be lost
    api_cluster   a world whose `node-a` follows an API server on a host of its own; api_client: requests to that
    warm_start    agents and commands as forks, where their start is not the point
    links         interfaces, addresses and routes of a host, by pyroute2
    nft           what a host's rules are, by the bindings of libnftables
    stopwatch     time without that in which others had the processor
    fuzzing       bytes from outside with something wrong in them, and what must hold of them all

Worlds and their members come from nodeagent/lab/net/.
"""
