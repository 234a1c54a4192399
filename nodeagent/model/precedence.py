"""Decides which of several Services gets what only one can have: the oldest, then the first by namespace and name."""

_YOUNGEST = "~"
"""Sorts after every RFC 3339 time."""


def age_of(created: str) -> str:
    """Returns the sort key, the oldest first. created: the creationTimestamp; an object without one was not made by an API
    server, and never displaces one that was."""
    return created or _YOUNGEST
