"""What comes of sample connections: the result of a process that loads nothing of an agent, so that it starts cheaply."""

from msgspec import Struct

from nodeagent.model.problem import Problem

STOPPED, LOST = "ConnectionsStopped", "LongPacketsLost"


class FollowedSample(Struct, frozen=True):
    """What came of connections. processor_seconds: what it cost to follow them. unread: why some rules were not followed; empty: none."""

    problems: tuple[Problem, ...] = ()
    processor_seconds: float = 0.0
    unread: str = ""
