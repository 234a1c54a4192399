"""Chains and rules of every configuration are known as the agent's, and those with a change are not."""

import itertools
from dataclasses import replace

import pytest

from nodeagent.diagnosis.checks.written_program import is_program
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.image.image import interval_elements
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.wire.netlink.nf_tables.expressions import OneOf, Rule
from nodeagent.wire.netlink.nf_tables.ruleset_objects import KernelExpression, KernelRule, TableHeader

PODS = [
    ProgramOptions(),
    ProgramOptions(PodDetection.CIDR),
    ProgramOptions(PodDetection.CIDR, pod_range="10.244.0.0/16"),
    ProgramOptions(PodDetection.CIDR, pod_range="10.128.0.0/9"),
    ProgramOptions(PodDetection.INTERFACE, "cni0"),
    ProgramOptions(PodDetection.INTERFACE_PREFIX, "veth"),
]


def held(rule: Rule, chain: str) -> KernelRule:
    """A rule as the kernel would show it."""
    parts = ((one.name, one.encode_with(7) if isinstance(one, OneOf) else one.encode()) for one in rule)
    return KernelRule(chain, tuple(KernelExpression(*part) for part in parts))


def contents(options: ProgramOptions) -> Contents:
    program = build_program(Family.IPV4, options, [PickClass(3), PickClass(1, sticky=True)], [60])
    return Contents(
        TableHeader(0, "", 1),
        image={schema.POD_CIDRS: interval_elements(filter(None, [options.pod_range]), Family.IPV4)},
        hooks={chain.name: chain.hook for chain in program.chains},
        rules={chain.name: [held(rule, chain.name) for rule in chain.rules] for chain in program.chains},
        verdicts=program.verdicts,
    )


@pytest.mark.parametrize(
    ("pods", "masquerade_all", "names", "flowtable"), [*itertools.product(PODS, *((False, True),) * 3)]
)
def test_every_configuration_is_known(pods: ProgramOptions, masquerade_all: bool, names: bool, flowtable: bool) -> None:
    options = replace(pods, masquerade_all=masquerade_all, names=names, flowtable=flowtable)
    assert is_program(contents(options), Family.IPV4)


def test_a_rule_less_a_rule_more_and_a_policy_are_noticed() -> None:
    less, more, closed = (contents(ProgramOptions(PodDetection.CIDR)) for _ in range(3))
    less.rules["prerouting"].pop()
    more.rules["prerouting"].append(replace(more.rules["prerouting"][0]))
    closed.policies["prerouting"] = 0
    assert [is_program(one, Family.IPV4) for one in (less, more, closed)] == [False, False, False]
