"""A value that changes when other programs change rules, or when the MTU of an interface changes."""

import socket
from contextlib import closing

from msgspec import Struct

from nodeagent.proxy.dataplane.chains_here import FAMILIES, read_chains
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, typed_errors
from nodeagent.proxy.dataplane.hook_order import is_ours
from nodeagent.wire.netlink.nf_tables.ruleset_objects import pack_rules, read_rule_place
from nodeagent.wire.netlink.rtnetlink import get_links, read_link
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETRULE

_MANY_ALIKE = "veth"
"""Interfaces of pods come and go: only their MTUs count."""


class PathFingerprint(Struct, frozen=True):
    """What decides the path of packets; if it is unchanged, the path is too.
    generation: of the ruleset. rules: of all chains and rules of other programs. widths: (interface, MTU)."""

    generation: int
    rules: int
    widths: frozenset[tuple[str, int]]

    @property
    def content(self) -> tuple[int, frozenset[tuple[str, int]]]:
        """What connections meet."""
        return self.rules, self.widths


def read_fingerprint(known: PathFingerprint | None) -> PathFingerprint:
    """Reads the rules if the ruleset has another generation than the known one, and all interfaces. Uses sockets of its own. A rule that
    is replaced has another handle; elements of sets do not count. Raises DataplaneError, OSError."""
    with closing(Ruleset()) as ruleset, NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        generation = ruleset.generation()
        unchanged = known is not None and known.generation == generation
        rules = known.rules if unchanged and known is not None else _rules(ruleset)
        links = retry(lambda: [read_link(body) for body in netlink.dump(get_links())])
    widths = {("" if one.kind == _MANY_ALIKE else one.name, one.mtu) for one in links}
    return PathFingerprint(generation, rules, frozenset(widths))


def _rules(ruleset: Ruleset) -> int:
    chains = tuple(one for one in read_chains(ruleset) if not is_ours(one))
    places: list[tuple[str, tuple[str, int]]] = []
    for table in dict.fromkeys(one.table for one in chains):
        family, _, name = table.partition(" ")
        with typed_errors():
            found = [
                read_rule_place(data) for data in ruleset.dump(NFT_MSG_GETRULE, FAMILIES[family], pack_rules(name))
            ]
        places += ((table, one) for one in found)
    return hash((chains, tuple(places)))
