"""Reads the cluster's objects from an API server or a manifest directory into a store of the latest objects.

Contract of this stage: a source (`api_source`, `manifests`) is built with a `ClusterStore` and has
``async def run(self) -> None`` that ends only by cancellation. It writes full lists (`replace`) and single changes
(`put`, `remove`); the store compares, keeps only what the agent reads, and reports to its `ChangeListener` which services
are dirty. No later stage sees an event: the state is always read from the store.

`watch` (the protocol of list and watch) is pure; `informer` drives it with `client`, endlessly. An object that cannot be
decoded is absent, and reported as a `Problem`. Errors of the connection are the tree in `client/api_errors`.
"""
