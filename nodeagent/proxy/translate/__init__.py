"""Pure: Services, EndpointSlices and the Node become what this node should do with packets.

Values in, values out: nothing here reads a clock, a file or a socket, and nothing logs; what is wrong with an object
comes back as a `Problem`. A result depends on the present objects only, never on the order in which they arrived.

    services.translate_service   one Service and its slices → ServiceState
    conflicts.Claims             who owns an address two services claim
    translator.Translator        the above for all services, incrementally
    node                         the Node and the configuration → Context, NodeState
"""
