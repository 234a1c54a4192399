"""Decides which servers are asked one question, when, and how. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from nodeagent.names.upstream.limits import AskLimits
from nodeagent.names.upstream.upstream_address import Server


class Step(NamedTuple):
    """A try. at: seconds after the question arrived. stream: by TCP."""

    at: float
    server: Server
    stream: bool = False


def schedule(servers: Sequence[Server], limits: AskLimits) -> tuple[Step, ...]:
    """Returns the tries: UDP to one server after the other, to the first two once more, then TCP to these two."""
    asked = servers[: limits.servers]
    first = [Step(min(number * limits.hedge, limits.again), server) for number, server in enumerate(asked)]
    again = [Step(limits.again, server) for server in asked[:2]]
    stream = [Step(limits.stream, server, stream=True) for server in asked[:2]]
    return (*first, *again, *stream)
