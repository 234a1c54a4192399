"""Where objects live: a storage that keeps revisions durably, and above it the latest state and a window of history in memory.

One number, the revision, counts every change of every object; it is what clients see as resourceVersion. `port` says what a
storage must do; `log` is the one there is, in SQLite or in memory, written by one thread, many transactions per commit. `store`
holds the latest state and the recent events in the event loop and is the only thing the rest of the control plane talks to.
"""
