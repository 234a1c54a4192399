"""The embedded API server: a small Kubernetes API for service networking, with the controllers Services need.

Layers, each importing only those above it:

    documents, status                 JSON documents, the errors clients see
    schema/                           pure: which fields a kind has; decoding, merging and ownership follow from it
    storage/                          revisions in SQLite, the in-memory index, history for watches
    validation/, service_*, alloc…    pure rules of the kinds
    resources                         one row per resource
    registry                          the verbs, without HTTP
    http/, access, pki                the server: paths, negotiation, streaming, who may do what
    controllers/                      loops over the store: endpoints, slices, namespaces, nodes, the kubernetes Service
    server                            composition
"""
