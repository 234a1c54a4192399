"""Compares what the kernel has of our table with what schema and program ask for (pure)."""

from collections.abc import Iterable, Mapping

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.nf_tables.comparison import covers
from nodeagent.wire.netlink.nf_tables.expressions import OneOf, Rule, set_looked_up
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


def same_chains(
    wanted: Iterable[Chain], hooks: Mapping[str, Hook | None], rules: Mapping[str, list[KernelRule]]
) -> bool:
    """Returns whether the kernel has exactly these chains with exactly these rules."""
    chains = tuple(wanted)
    if {chain.name: chain.hook for chain in chains} != dict(hooks):
        return False
    for chain in chains:
        held = rules.get(chain.name, [])
        if len(held) != len(chain.rules):
            return False
        if not all(_same_rule(want, have) for want, have in zip(chain.rules, held, strict=True)):
            return False
    return True


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
