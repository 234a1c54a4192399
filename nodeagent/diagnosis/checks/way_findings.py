"""Findings about connections to Services that do not get through this node (pure)."""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.diagnosis.checks.finding import Finding, Result


class WayFact(Struct, frozen=True):
    """Connections of one kind of client to Services with endpoints. asked: how many were examined. stopped: how many fail.

    first: the first that fails, as `SRC -> DST:PORT/PROTOCOL`. why, cure: why it fails, and what to do. fault: whether it
    certainly is a fault. share: how much of that first connection fails, as `1/3`; empty: all. hole, hole_cure: where long
    packets are lost, and what to do; empty: nowhere. left_out: endpoints of those Services that were not followed.
    """

    family: str
    client: str
    asked: int
    stopped: int = 0
    first: str = ""
    why: str = ""
    cure: str = ""
    fault: bool = False
    hole: str = ""
    hole_cure: str = ""
    share: str = ""
    left_out: int = 0


def way_findings(facts: tuple[WayFact, ...]) -> Iterator[Finding]:
    """Yields a failure if no connection gets through or if it certainly is a fault. Else yields a note, because a rule may
    stop those connections on purpose."""
    for one in facts:
        check = f"{one.family} connections"
        if one.hole:
            yield Finding(check, Result.FAILED, f"from {one.client}: {one.hole}", one.hole_cure)
        left_out = f"; {one.left_out} of their endpoints were not followed" if one.left_out else ""
        if not one.stopped:
            found = f"from {one.client}: {one.asked} of {one.asked} Services are reached{left_out}"
            yield Finding(check, Result.OK, found)
            continue
        first = f"{one.first}, in {one.share} of all cases" if one.share else one.first
        failed = one.fault or one.stopped == one.asked
        yield Finding(
            check,
            Result.FAILED if failed else Result.NOTE,
            f"from {one.client}: connections to {one.stopped} of {one.asked} Services fail ({first}): {one.why}{left_out}",
            one.cure,
        )
