"""Pure: computes from Services, EndpointSlices and the Node what this node shall do with packets.

Nothing here reads a clock, a file or a socket, and nothing logs. What is wrong with an object is returned as a `Problem`.
A result depends on the present objects only, never on the order in which they arrived.

    services.translate_service   one Service and its slices → ServiceState
    conflicts.Claims             decides which Service gets an address that two Services claim
    translator.Translator        does both for all Services, incrementally
    node_state                   the Node and the configuration → Context, NodeState
"""
