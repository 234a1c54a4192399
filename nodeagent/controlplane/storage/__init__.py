"""Where objects live: append-only revisions in SQLite, an index of the latest in memory, and a window of history.

One number, the revision, counts every change of every object; it is what clients see as resourceVersion. `log` writes
revisions durably from one thread, many transactions per commit; `store` holds the latest state and the recent events
in the event loop and is the only thing the rest of the control plane talks to.
"""
