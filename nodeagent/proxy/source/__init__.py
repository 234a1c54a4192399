"""What the cluster says: API server or manifest directory in, a store of the latest objects out.

Contract of this stage: a source (`api_source`, `manifests`) is built with a `ClusterStore` and has
``async def run(self) -> None`` that ends only by cancellation. It writes full lists (`replace`) and single changes
(`put`, `remove`); the store compares, keeps only what the agent reads, and tells its `ChangeListener` which services
are dirty. Nobody downstream sees an event: the state is always read from the store.

`watch` (the protocol of list and watch) is pure; `informer` drives it with `client`, for ever. An object that does
not decode is absent, plus a `Problem`. Errors of the connection are the tree in `errors`.
"""
