"""Finds chains of other programs that translate connections before ours, and describes the consequence."""

from collections.abc import Iterable

from nodeagent.proxy.dataplane.chains_here import ChainFact
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.proxy.dataplane.program.program import BEFORE_DSTNAT, BEFORE_SRCNAT
from nodeagent.wire.netlink.nf_tables.ruleset_objects import ChainHook

CHECK = "hook order"
REASON = "TranslatedBefore"
NAT = "nat"
OURS: dict[int, int] = {
    HookNumber.PREROUTING: BEFORE_DSTNAT,
    HookNumber.OUTPUT: BEFORE_DSTNAT,
    HookNumber.POSTROUTING: BEFORE_SRCNAT,
}
"""Hook → the priority of our first chain of type nat. Those of iptables-legacy are at -100 and 100, behind it."""


def early_chains(chains: Iterable[ChainFact]) -> tuple[tuple[ChainFact, ChainHook], ...]:
    """Returns the chains that may take connections before ours, each with its hook."""
    return tuple((chain, hook) for chain in chains if (hook := chain.hook) is not None and _is_early(chain, hook))


def describe(chain: ChainFact, hook: ChainHook) -> str:
    """Returns the consequence of such a chain, as a text for users."""
    return (
        f"{chain.table}, chain {chain.name} translates in {HookNumber(hook.number).name.lower()} at {hook.priority}, before "
        f"ours at {OURS[hook.number]}: connections that it matches never reach a Service's endpoints"
    )


def cure(hook: ChainHook) -> str:
    """Returns what the user can do about it."""
    return f"give it a priority above {OURS[hook.number]}"


def is_ours(chain: ChainFact) -> bool:
    """Returns whether the chain is in a table of ours."""
    return chain.table.partition(" ")[2].startswith(schema.TABLE)


def _is_early(chain: ChainFact, hook: ChainHook) -> bool:
    return hook.type == NAT and not is_ours(chain) and hook.number in OURS and hook.priority <= OURS[hook.number]
