"""The embedded API server: a small Kubernetes API for service networking, with the controllers that Services need.

The packages below import only those above them; the kinds and their schemas are in nodeagent/kinds/.

    storage/                     revisions, kept durably; the latest state and recent history in memory
    addresses/                   cluster addresses and node ports: ranges, and the holder of each
    machinery/                   what all kinds share: verbs, rules for writes, selectors, schemas
    controllers/, api/           loops over the store; HTTP, access, tokens, certificates
    service_writes               the addresses and node ports that are written with a Service
    bootstrap, api_server        what every store contains; composition
"""
