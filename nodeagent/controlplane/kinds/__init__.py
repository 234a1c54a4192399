"""The kinds this server has, one file each: row, shape, defaults, validation, columns, life cycle. See docs/apiserver.md."""
