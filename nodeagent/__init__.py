"""nodeagent: a node-local service proxy for Linux.

    API server / manifests                                           kernel
         │ list, watch                                                  ▲ one atomic batch
         ▼                                                              │
     kube/  informer ─▶ store ──dirty keys──▶ engine/ changes ─▶ sync ──┤
                          │                               │  ▲          │
                          └── snapshot ─▶ translate/ ─────┘  │    dataplane/ drivers
                                          (pure)  desired    │    render (pure) → image
                                                             └─── diff (pure) against what is programmed

Directory = stage of the flow, file = noun or decision. docs/architecture.md says where each thing is decided.
"""

__version__ = "0.1.0"
