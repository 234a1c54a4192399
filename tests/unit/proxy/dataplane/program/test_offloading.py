"""The rules that add established connections to a flowtable; tests/boot/vm sends packets through them."""

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook, HookNumber, ProgramOptions
from nodeagent.proxy.dataplane.program.loads import CLEAR
from nodeagent.proxy.dataplane.program.offloading import FORWARD_CHAIN, OFFLOAD_CHAIN
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.wire.netlink.nf_tables.expressions import FlowOffload, Lookup, MetaSet

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
COUNTED = {spec.name for spec in schema.set_specs(counters=True, endpoint_counters=True) if spec.counter}
OFF, ON = ProgramOptions(), ProgramOptions(flowtable=True)


def chains(family: Family, options: ProgramOptions) -> dict[str, Chain]:
    return {chain.name: chain for chain in build_program(family, options, (), ()).chains}


@FAMILIES
def test_off_there_is_no_hook_that_sees_every_packet(family: Family) -> None:
    program = build_program(family, OFF, (), ())

    assert program.flowtable == ""
    assert not [chain for chain in program.chains if chain.hook and chain.hook.type is ChainType.FILTER]


@FAMILIES
def test_on_two_chains_are_added_and_the_others_stay(family: Family) -> None:
    off, on = chains(family, OFF), chains(family, ON)

    assert on.keys() - off.keys() == {FORWARD_CHAIN, OFFLOAD_CHAIN}
    assert off.items() <= on.items()
    assert build_program(family, ON, (), ()).flowtable == schema.FLOWTABLE


@FAMILIES
def test_it_comes_behind_the_filters_of_others(family: Family) -> None:
    """A packet that a filter of the hook drops is never added: iptables' last table, `security`, is at 50."""
    hook = chains(family, ON)[FORWARD_CHAIN].hook

    assert hook == Hook(HookNumber.FORWARD, 1000, ChainType.FILTER)


@FAMILIES
def test_each_rule_knows_ours_by_a_set_that_counts_nothing_and_clears_the_scratch_field(family: Family) -> None:
    rules = chains(family, ON)[OFFLOAD_CHAIN].rules
    looked_up = {expression.set for rule in rules for expression in rule if isinstance(expression, Lookup)}

    assert all(rule[-1] == FlowOffload(schema.FLOWTABLE) for rule in rules)
    assert looked_up == {
        schema.CLUSTER_IPS,
        schema.MASQUERADE_FRONTENDS,
        schema.FRONTENDS_CLUSTER_SCOPE,
        schema.MASQUERADE_NODEPORTS,
        schema.LOCAL_POLICY_NODEPORTS,
    }
    assert not looked_up & COUNTED, "packets would be counted as connections"
    for rule in rules:
        written = [at for at, one in enumerate(rule) if isinstance(one, MetaSet)]
        assert not written or rule[written[-1] - 1 : -1] == CLEAR
