"""Checks whether the ClusterIPs are addresses of this node (pure)."""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.diagnosis.checks.finding import Finding, Result

CHECK = "service interface"
_SHOWN = 3


class InterfaceFact(Struct, frozen=True):
    """The state of the service interface. interface: its name. there: whether it exists. cluster_ips: how many are programmed.

    missing: ClusterIPs that are neither local nor covered by the route of a range. lost: whether the node has no route to
    one of those. ranged: how many ClusterIPs the route of a range covers.
    """

    interface: str
    there: bool
    cluster_ips: int
    missing: tuple[str, ...] = ()
    lost: bool = False
    ranged: int = 0


def interface_findings(fact: InterfaceFact) -> Iterator[Finding]:
    """Yields a failure if the interface lacks addresses or the node has no route to them; a note if there is no interface
    but a route; nothing if there are no ClusterIPs."""
    if not fact.cluster_ips:
        return
    if not fact.missing:
        by_range = f", {fact.ranged} of them by the route of their range" if fact.ranged else ""
        found = f"{fact.cluster_ips} of {fact.cluster_ips} ClusterIPs are addresses of this node{by_range}"
        yield Finding(CHECK, Result.OK, found)
        return
    shown = ", ".join(fact.missing[:_SHOWN]) + (", …" if len(fact.missing) > _SHOWN else "")
    count = f"{len(fact.missing)} of {fact.cluster_ips} ClusterIPs are not addresses of this node ({shown})"
    cure = "see that the agent runs, it puts that right at once: systemctl status nodeagent, or nodeagent run --once"
    if fact.there:
        yield Finding(CHECK, Result.FAILED, f"{count}: somebody took them from {fact.interface}", cure)
    elif fact.lost:
        detail = f"{count}, and it has no route to them: there is no {fact.interface}, its own processes cannot connect"
        yield Finding(CHECK, Result.FAILED, detail, cure)
    else:
        detail = f"{count}: there is no {fact.interface}, its own processes connect by way of a route"
        yield Finding(
            CHECK, Result.NOTE, detail, "nothing where dataplane.serviceInterface is false; else start the agent"
        )
