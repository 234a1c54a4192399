"""Finds tables of other programs that may stop ARP, by which IPv4 finds the hosts behind an interface."""

from collections.abc import Iterator
from contextlib import closing

from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, read_objects
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.wire.netlink.nf_tables.expressions import Code, Verdict
from nodeagent.wire.netlink.nf_tables.rule_reading import read_rule_expressions
from nodeagent.wire.netlink.nf_tables.ruleset_objects import read_chain, read_rule, table_of
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETCHAIN, NFT_MSG_GETRULE
from nodeagent.wire.netlink.uapi.nfnetlink import NFPROTO_ARP


def stopping_arp_tables(ruleset: Ruleset) -> Iterator[str]:
    """Yields the names of ARP's tables that drop something, by a rule or by a policy. Raises DataplaneError."""
    chains = read_objects(ruleset, NFT_MSG_GETCHAIN, NFPROTO_ARP, read_chain)
    rules = (
        read_objects(ruleset, NFT_MSG_GETRULE, NFPROTO_ARP, lambda data: (table_of(data), read_rule(data)))
        if chains
        else []
    )
    found = {chain.table: None for chain in chains if chain.policy == Code.DROP}
    for table, rule in rules:
        if any(isinstance(part, Verdict) and part.code is Code.DROP for part in read_rule_expressions(rule, {})):
            found[table] = None
    yield from found


def arp_rules_here() -> str:
    """Returns what rules may stop ARP in this network namespace, for a text that says that no host answers; empty if no rules do, or
    this process may not read them."""
    try:
        with closing(Ruleset()) as ruleset:
            table = next(stopping_arp_tables(ruleset), "")
    except (DataplaneError, OSError):
        return ""
    return f"table arp {table} drops packets of ARP: nft list table arp {table}" if table else ""
