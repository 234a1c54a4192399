"""API objects as JSON documents.

The server stores and returns fields that it never reads, so objects are plain dictionaries; their schema is checked at run time
(`decoding`), not by the type checker.
"""

from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = Any
"""Any JSON value: None, bool, int, float, str, list or dict."""

Document: TypeAlias = dict[str, Json]
"""A JSON object."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


def copy(value: Json) -> Json:
    """Returns a deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy(item) for item in value]
    return value


def is_deeper(value: Json, limit: int) -> bool:
    """Returns whether maps and lists are nested more than `limit` deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
