"""Reads all chains of this network namespace, those of other programs included."""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, read_objects
from nodeagent.wire.netlink.nf_tables.expressions import Code
from nodeagent.wire.netlink.nf_tables.ruleset_objects import ChainHook, read_chain
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETCHAIN
from nodeagent.wire.netlink.uapi.nfnetlink import NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6

FAMILIES = {"ip": NFPROTO_IPV4, "ip6": NFPROTO_IPV6, "inet": NFPROTO_INET}


class ChainFact(Struct, frozen=True):
    """A chain of any program. table: with its family, as `ip nat`; that of iptables-legacy as `iptables-legacy nat`."""

    table: str
    name: str
    hook: ChainHook | None = None
    accepts: bool = True


def read_chains(ruleset: Ruleset) -> Iterator[ChainFact]:
    """Yields the chains of nftables in the families that see IP packets. Raises DataplaneError."""
    for family, number in FAMILIES.items():
        for chain in read_objects(ruleset, NFT_MSG_GETCHAIN, number, read_chain):
            yield ChainFact(f"{family} {chain.table}", chain.name, chain.hook, chain.policy == Code.ACCEPT)
