"""Who is asked before us: chains of others that translate connections first (pure)."""

from collections.abc import Iterator

from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.diagnosis.checks.node_facts import ChainFact, Facts
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.proxy.dataplane.program.program import BEFORE_DSTNAT, BEFORE_SRCNAT

NAT = "nat"
_FAMILY_OF_TABLE = {"ip": "IPv4", "ip6": "IPv6", "iptables-legacy": "IPv4", "ip6tables-legacy": "IPv6"}
OURS: dict[int, int] = {
    HookNumber.PREROUTING: BEFORE_DSTNAT,
    HookNumber.OUTPUT: BEFORE_DSTNAT,
    HookNumber.POSTROUTING: BEFORE_SRCNAT,
}
"""Hook → the priority of our first chain of type nat."""


def order_findings(facts: Facts) -> Iterator[Finding]:
    """A failure for each chain that may take connections before ours; otherwise that ours are the first."""
    early = [chain for chain in facts.chains if _is_early(chain)]
    for chain in early:
        assert chain.hook is not None, "only base chains are early"
        yield Finding(
            "hook order",
            Result.FAILED,
            f"{chain.table}, chain {chain.name} translates in {HookNumber(chain.hook.number).name.lower()} at {chain.hook.priority}, before "
            f"ours at {OURS[chain.hook.number]}: connections that it matches never reach a Service's endpoints",
            f"give it a priority above {OURS[chain.hook.number]}",
            "TranslatedBefore",
            _FAMILY_OF_TABLE.get(chain.table.partition(" ")[0], ""),
        )
    if not early:
        yield Finding("hook order", Result.OK, f"nobody translates before us ({_count(facts)} chains of others)")


def _is_early(chain: ChainFact) -> bool:
    if chain.hook is None or chain.hook.type != NAT or _own(chain):
        return False
    return chain.hook.number in OURS and chain.hook.priority <= OURS[chain.hook.number]


def _own(chain: ChainFact) -> bool:
    return chain.table.partition(" ")[2].startswith(schema.TABLE)


def _count(facts: Facts) -> int:
    return sum(1 for chain in facts.chains if not _own(chain))
