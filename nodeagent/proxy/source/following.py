"""How far the following of one resource is, for status pages and metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class Following:
    """resource: plural name. lists: full ones that were completed. last_received: when the server last said anything of it, an
    answer, an event or a bookmark (loop time); None: never."""

    resource: str
    lists: int = 0
    last_received: float | None = None
