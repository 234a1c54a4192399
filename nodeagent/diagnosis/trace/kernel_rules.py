"""Reads other tables and IPsec, and the parts of rules that libnftables does not show, directly from the kernel."""

from collections.abc import Iterator

from nodeagent.proxy.dataplane.arp_rules import stopping_arp_tables
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, read_objects, typed_errors
from nodeagent.wire.netlink.ipsec import Policy, get_policies, read_policy
from nodeagent.wire.netlink.nf_tables.rule_reading import Extension, read_extensions
from nodeagent.wire.netlink.nf_tables.ruleset_objects import pack_rules, read_rule, table_of
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi import nfnetlink as uapi
from nodeagent.wire.netlink.uapi.netlink import NETLINK_XFRM
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETRULE, NFT_MSG_GETTABLE

RulePosition = tuple[str, int]
"""A rule's chain and handle."""
_NFPROTOS = {
    "ip": uapi.NFPROTO_IPV4,
    "ip6": uapi.NFPROTO_IPV6,
    "inet": uapi.NFPROTO_INET,
    "netdev": uapi.NFPROTO_NETDEV,
    "bridge": uapi.NFPROTO_BRIDGE,
}


ARP = "arp"
OUTSIDE = ("netdev", "bridge", ARP)
"""Families whose rules packets meet outside of IP."""


def table_names(ruleset: Ruleset) -> Iterator[tuple[str, str]]:
    """Yields every table, its family first; of those of ARP only the ones that may drop something. Not through libnftables: 1.0.6 prints
    invalid JSON for a table that its owner left."""
    for family, number in _NFPROTOS.items():
        yield from ((family, name) for name in read_objects(ruleset, NFT_MSG_GETTABLE, number, table_of))
    yield from ((ARP, name) for name in stopping_arp_tables(ruleset))


def ipsec_policies() -> Iterator[Policy]:
    """Yields the policies of this network namespace; nothing if the kernel has no IPsec, or does not report them."""
    try:
        with NetlinkSocket(NETLINK_XFRM) as netlink:
            yield from retry(lambda: [read_policy(body) for body in netlink.dump(get_policies())])
    except OSError:
        return


def extensions_in(ruleset: Ruleset, family: str, table: str) -> dict[RulePosition, tuple[Extension, ...]]:
    """Returns the extensions of iptables in the rules of a table."""
    rules = read_objects(ruleset, NFT_MSG_GETRULE, _NFPROTOS[family], read_rule, pack_rules(table))
    with typed_errors():
        return {(rule.chain, rule.handle): read_extensions(rule) for rule in rules}
