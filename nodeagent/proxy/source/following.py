"""The progress of following one resource, for status pages and metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class Following:
    """The progress of following one resource. resource: plural name. lists: how many full lists were completed. last_received:
    when the server last sent anything of it, an answer, an event or a bookmark (loop time); None: never."""

    resource: str
    lists: int = 0
    last_received: float | None = None
