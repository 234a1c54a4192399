"""The proxy: what runs on every node, from the API server's watch to the kernel.

    source/     the cluster's objects: from an API server or a directory of manifests
    translate/  pure: computes from objects what this node does with packets
    engine/     when and in which order: the queue of changes, the pass, pacing, giving up
    dataplane/  programs the kernel
    observe/    reports the state of the agent: metrics, Events, health, the status page

It imports neither our API server nor the process that answers names.
"""
