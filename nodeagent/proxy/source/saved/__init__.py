"""The last known state of the cluster in a file, for a start at which no API server answers.

`state_keeper` writes the file while an API server is followed; `state_restorer` reads it if none answers. `saved_bytes` (pure)
is the format, `state_origin` (pure) decides whether a file may be used, `state_file` reads and writes the disk. The first full lists
replace what the file held, in the same way as any list replaces the one before.
"""
