"""Checks whether masqueraded connections find free source ports (pure)."""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.diagnosis.checks.finding import Finding, Result

CHECK = "source ports"


class CrowdFact(Struct, frozen=True):
    """Too many connections from an address of the node to one endpoint. says: how many, and what follows. cure: what to do."""

    says: str
    cure: str


def port_findings(crowds: tuple[CrowdFact, ...]) -> Iterator[Finding]:
    """Yields a failure for each of `crowds`."""
    for one in crowds:
        yield Finding(CHECK, Result.FAILED, one.says, one.cure, "SourcePortsShort")
