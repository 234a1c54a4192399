"""Storage of objects: a storage keeps revisions durably; above it the latest state and a window of history are in memory.

One number, the revision, counts every change of every object; clients see it as resourceVersion. `port` is the interface of a
storage; `log` implements it with SQLite, in a file or in memory, written by one thread with many transactions per commit;
`etcd` with etcd. `store` holds the latest state and recent events in the event loop; all other parts of the API server use only
it.
"""
