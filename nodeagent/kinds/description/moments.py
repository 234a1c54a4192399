"""Timestamps of API objects. Pure."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=16)
def rfc3339(second: int) -> str:
    """Returns seconds since 1970 as `2006-01-02T15:04:05Z`. Cached: a burst of writes uses the same second."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
