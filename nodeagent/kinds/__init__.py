"""The kinds of the Kubernetes API, one file each: row, shape, defaults, validation, columns, life. See docs/apiserver.md.

`description/` is what they are described in; `catalog` finds them. Nothing here stores, serves or asks.
"""
