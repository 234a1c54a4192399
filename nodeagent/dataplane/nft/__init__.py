"""The nf_tables side: services as map elements under a constant ruleset.

Pure: `expressions`, `schema`, `program`, `image`, `render`, `desired`, `diff`, `transaction`, `readback`,
`interpreter`. I/O: `netlink` (one socket) and `driver` (adopt, commit, repair). docs/dataplane.md explains the table.
"""
