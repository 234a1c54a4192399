"""Points in time as API objects have them. Pure."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=16)
def rfc3339(second: int) -> str:
    """A second since 1970 as `2006-01-02T15:04:05Z`; a burst of writes asks for the same one again and again."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
