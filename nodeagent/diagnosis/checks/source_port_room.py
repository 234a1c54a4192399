"""Whether masqueraded connections find source ports (pure)."""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.diagnosis.checks.finding import Finding, Result

CHECK = "source ports"


class CrowdFact(Struct, frozen=True):
    """Too many connections from an address of the node to one endpoint. says: how many, as a clause. full: no port is left.
    cure: what to do."""

    says: str
    full: bool
    cure: str


def port_findings(crowds: tuple[CrowdFact, ...]) -> Iterator[Finding]:
    """A failure for each group of clients that is too large; otherwise nothing."""
    for one in crowds:
        follows = (
            "new connections that are masqueraded to it are dropped" if one.full else "some of the new ones are dropped"
        )
        yield Finding(CHECK, Result.FAILED, f"{one.says}: {follows}", one.cure, "SourcePortsShort")
