"""What there is of other tables, and what libnftables cannot say of their rules, straight from the kernel."""

from collections.abc import Iterator

from nodeagent.dataplane.nft.ruleset import Ruleset, typed
from nodeagent.netlink.nf_tables.objects import pack_rules, read_rule, table_of
from nodeagent.netlink.nf_tables.rule_reading import Extension, read_extensions
from nodeagent.netlink.uapi.nf_tables import NFT_MSG_GETRULE, NFT_MSG_GETTABLE
from nodeagent.netlink.uapi.nfnetlink import (
    NFPROTO_BRIDGE,
    NFPROTO_INET,
    NFPROTO_IPV4,
    NFPROTO_IPV6,
    NFPROTO_NETDEV,
)

Place = tuple[str, int]
"""A rule's chain and handle."""
_NFPROTOS = {
    "ip": NFPROTO_IPV4,
    "ip6": NFPROTO_IPV6,
    "inet": NFPROTO_INET,
    "netdev": NFPROTO_NETDEV,
    "bridge": NFPROTO_BRIDGE,
}


def table_names(ruleset: Ruleset) -> Iterator[tuple[str, str]]:
    """Every table, its family first. Not through libnftables: 1.0.6 prints what is no JSON of a table that an owner left."""
    for family, number in _NFPROTOS.items():
        with typed():
            names = [table_of(data) for data in ruleset.dump(NFT_MSG_GETTABLE, number)]
        yield from ((family, name) for name in names)


def extensions_in(ruleset: Ruleset, family: str, table: str) -> dict[Place, tuple[Extension, ...]]:
    """The extensions of iptables in the rules of a table."""
    found = {}
    with typed():
        for data in ruleset.dump(NFT_MSG_GETRULE, _NFPROTOS[family], pack_rules(table)):
            rule = read_rule(data)
            found[rule.chain, rule.handle] = read_extensions(rule)
    return found
