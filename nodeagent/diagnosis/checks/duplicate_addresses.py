"""Judges whether two hosts have one address (pure)."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.model.addresses import Family

CHECK = "duplicate addresses"


class AnsweringHosts(Struct, frozen=True):
    """The hosts that answer ARP requests for an address. own: it is one of this node. hosts: hardware addresses of others, as text."""

    interface: str
    address: str
    own: bool
    hosts: tuple[str, ...]


def duplicate_findings(answering: Sequence[AnsweringHosts]) -> Iterator[Finding]:
    """Yields a finding for each address for which several hosts answer, or one for all addresses; nothing if no host could be asked."""
    twice = [one for one in answering if len(one.hosts) > (0 if one.own else 1)]
    for one in twice:
        cure = f"give each host an address of its own; ip neigh show {one.address} shows which one this node uses"
        yield Finding(CHECK, Result.FAILED, _detail(one), cure, "DuplicateAddress", Family.IPV4.value)
    if answering and not twice:
        yield Finding(
            CHECK,
            Result.OK,
            f"one host answers for each of {len(answering)} addresses of this node, its gateways and pods",
        )


def _detail(one: AnsweringHosts) -> str:
    hosts = " and ".join(one.hosts)
    if one.own:
        return f"another host ({hosts}) has {one.address} of this node on {one.interface}: answers to this node are lost there"
    return (
        f"several hosts have {one.address} on {one.interface} ({hosts}): packets to it reach one or the other"
        " (or it is one host with two interfaces there: net.ipv4.conf.all.arp_ignore=1 on it)"
    )
