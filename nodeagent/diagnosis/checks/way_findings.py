"""What it means that connections to Services do not get through (pure)."""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.diagnosis.checks.finding import Finding, Result


class WayFact(Struct, frozen=True):
    """Connections of one kind of client to Services with endpoints: how many were looked at, how many are stopped.

    first: the first that is, as `SRC -> DST:PORT/PROTOCOL`. why, cure: of it. fault: whether that is a fault for certain.
    share: of the connections of the first that are stopped, as `1/3`; empty: all. hole, hole_cure: where long packets
    vanish; empty for nowhere. left_out: endpoints of those Services that were not followed.
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
    """A failure where nothing gets through or no rule is the cause; what a rule stops may be meant to be stopped."""
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
