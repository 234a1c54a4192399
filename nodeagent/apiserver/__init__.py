"""The embedded API server: a small Kubernetes API for service networking, with the controllers Services need.

Rooms, each importing only those above it; the kinds and what they are described in are in nodeagent/kinds/.

    storage/                     revisions, kept durably; the latest state and recent history in memory
    addresses/                   cluster addresses and node ports: ranges, and who holds what
    machinery/                   what all kinds share: verbs, rules of writing, selectors, the engine of shapes
    controllers/, api/           loops over the store; HTTP, access, tokens, certificates
    service_writes               the addresses and node ports that are written with a Service
    bootstrap, api_server        what every store holds; composition
"""
