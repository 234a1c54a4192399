"""Judges whether rules of other programs stop connections that this node should carry: the part of `nodeagent check` that the agent repeats
(pure).

What a rule may stop on purpose is no fault: one Service, one pod, a port of the node itself.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nodeagent.diagnosis.trace.journey import Node
from nodeagent.diagnosis.trace.narrow_ways import BlackHole
from nodeagent.diagnosis.trace.routes import Router
from nodeagent.diagnosis.trace.sampled_ways import (
    MOST_PODS,
    THIS_NODE,
    LostConnection,
    Place,
    Ways,
    ways_from,
    ways_to_places,
)


class RuleFault(NamedTuple):
    """A rule of another program that stops connections to Services.
    client: in words. why, cure: one clause each. long_only: only long packets are lost."""

    client: str
    why: str
    cure: str
    long_only: bool = False


def find_rule_faults(places: Sequence[Place], node: Node, router: Router) -> tuple[RuleFault, ...]:
    """Returns the faults of connections to these places, from this node and from its pods. Raises OSError."""
    pods = [] if node.own is None else [one for one in node.own.endpoints_here() if one not in node.local]
    pods = [one for one in pods if node.own is not None and node.own.is_pod(one)]
    found: list[RuleFault] = []
    for ways in ways_to_places(places, node, router, pods):
        stopped = next(_stopped(ways), None)
        if stopped is not None and ways.client != THIS_NODE:
            others = (ways_from(pod, places, node, router) for pod in pods[1:MOST_PODS])
            stopped = stopped if all(any(_stopped(other)) for other in others) else None
        if stopped is not None:
            found.append(RuleFault(ways.client, stopped.reason.why, stopped.reason.cure))
        if ways.hole is not None:
            long_only = isinstance(ways.hole, BlackHole)
            found.append(RuleFault(ways.client, str(ways.hole), ways.hole.cure, long_only))
    return tuple(found)


def _stopped(ways: Ways) -> Iterator[LostConnection]:
    """Yields the connections that a rule stops, and certainly not on purpose: it stops all, several at a hook that no other one
    passes, or only their translation or their answers."""
    for one in ways.stopped:
        alike = sum(other.by_others and other.hook == one.hook for other in ways.stopped)
        if one.by_others and ways.is_fault(one) and (one.certain or alike > 1 or ways.closed):
            yield one
