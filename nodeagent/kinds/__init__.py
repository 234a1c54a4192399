"""The kinds of the Kubernetes API, one file each: row, schema, defaults, validation, columns, life cycle. See
docs/apiserver.md.

`description/` has the types and rules from which kinds are built; `catalog` finds them. Nothing here stores or serves objects.
"""
