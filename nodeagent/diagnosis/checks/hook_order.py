"""Checks whether chains of other programs translate connections before ours (pure)."""

from collections.abc import Iterator

from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.diagnosis.checks.node_facts import Facts
from nodeagent.proxy.dataplane.hook_order import CHECK, REASON, cure, describe, early_chains, is_ours

_FAMILY_OF_TABLE = {"ip": "IPv4", "ip6": "IPv6", "iptables-legacy": "IPv4", "ip6tables-legacy": "IPv6"}


def order_findings(facts: Facts) -> Iterator[Finding]:
    """Yields a failure for each chain that may translate connections before ours, or OK if there is no such chain."""
    early = early_chains(facts.chains)
    for chain, hook in early:
        family = _FAMILY_OF_TABLE.get(chain.table.partition(" ")[0], "")
        yield Finding(CHECK, Result.FAILED, describe(chain, hook), cure(hook), REASON, family)
    if not early:
        others = sum(1 for chain in facts.chains if not is_ours(chain))
        yield Finding(CHECK, Result.OK, f"nobody translates before us ({others} chains of others)")
