"""The proxy: what runs on every node, from the API server's watch to the kernel.

    source/     the cluster's objects: from an API server or a directory of manifests
    translate/  pure: objects become what this node does with packets
    engine/     when and in which order: the queue of changes, the pass, pacing, giving up
    dataplane/  how it gets into the kernel
    observe/    how the agent tells how it is

It knows neither the API server of ours nor the process that answers names.
"""
