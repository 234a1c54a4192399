"""Compares what the kernel has of our table with what schema and program ask for (pure)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.nf_tables.comparison import covers, set_looked_up
from nodeagent.wire.netlink.nf_tables.expressions import OneOf, Rule
from nodeagent.wire.netlink.nf_tables.ruleset_objects import ChainHook, KernelRule, SetHeader

_CHAIN_TYPES = frozenset(kind.value for kind in ChainType)


def same_set(held: SetHeader, spec: SetSpec, family: Family) -> bool:
    """Returns whether this is the set that `spec` asks for."""
    return (
        held.flags == spec.flags
        and held.key_type == spec.key_type(family)
        and held.key_length == spec.key_length(family)
        and held.data_type == spec.data_type(family)
        and held.data_length == spec.data_length(family)
        and held.counter == spec.counter
    )


def hook_of(held: ChainHook | None) -> Hook | None:
    """Returns where a chain of the kernel is attached; None for a chain without a hook, or of a type that we never use."""
    if held is None or held.type not in _CHAIN_TYPES:
        return None
    return Hook(held.number, held.priority, ChainType(held.type))


class TableDeviation(NamedTuple):
    """What differs in a table. kind: `table`, `sets`, `chains`, `rules` or `elements`. detail: one line for users."""

    kind: str
    detail: str


def chain_deviation(
    wanted: Iterable[Chain], hooks: Mapping[str, Hook | None], rules: Mapping[str, list[KernelRule]]
) -> TableDeviation | None:
    """Returns the first difference from exactly these chains with exactly these rules; None if the kernel has those."""
    chains = {chain.name: chain for chain in wanted}
    for name in sorted(chains.keys() | hooks.keys()):
        if name not in hooks or name not in chains:
            return TableDeviation("chains", f"chain {name} is {'gone' if name in chains else 'not ours'}")
        chain, held = chains[name], rules.get(name, [])
        if chain.hook != hooks[name]:
            return TableDeviation("chains", f"chain {name} is at another hook")
        if len(held) != len(chain.rules):
            return TableDeviation("rules", f"chain {name} has {len(held)} rules, not {len(chain.rules)}")
        for number, (want, have) in enumerate(zip(chain.rules, held, strict=True), 1):
            if not _same_rule(want, have):
                return TableDeviation("rules", f"rule {number} of chain {name} is another one")
    return None


def _same_rule(wanted: Rule, held: KernelRule) -> bool:
    if [expression.name for expression in wanted] != [expression.name for expression in held.expressions]:
        return False
    for expression, (_, data) in zip(wanted, held.expressions, strict=True):
        # The kernel chooses the name of an anonymous set; its constants never differ between programs.
        if isinstance(expression, OneOf):
            if not set_looked_up(memoryview(data)).startswith("__set"):
                return False
            continue
        if not covers(data, expression.encode()):
            return False
    return True
