"""The embedded API server: a small Kubernetes API for service networking, with the controllers Services need.

Rooms, each importing only those above it:

    documents, moments, status   JSON documents, points in time, the errors clients see
    storage/                     revisions, kept durably; the latest state and recent history in memory
    addresses/                   cluster addresses and node ports: ranges, and who holds what
    machinery/                   what all kinds share: verbs, rules of writing, selectors, the engine of shapes
    kinds/                       one file a kind: its row, shape, defaults, validation, columns, life cycle
    controllers/, api/           loops over the store; HTTP, access, tokens, certificates
    bootstrap, server            what every store holds; composition
"""
