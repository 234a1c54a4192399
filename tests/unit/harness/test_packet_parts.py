"""Every part that `make bench-connections` can take out of the rules is in them, and the rest is a program."""

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.wire.netlink.nf_tables.expressions import Verdict
from tests.bench.new_connection import PLANS
from tests.bench.packet_parts import PARTS, without


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_in_the_program_and_the_rest_leads_somewhere(part: str, family: Family) -> None:
    options = ProgramOptions(PodDetection.CIDR, pod_range=PLANS[family].pod_prefix)
    whole = build_program(family, options, [PickClass(10)], ())
    left = without(part, whole)

    assert left != whole
    names = {chain.name for chain in left.chains}
    targets = {
        e.chain for chain in left.chains for rule in chain.rules for e in rule if isinstance(e, Verdict) and e.chain
    }
    assert targets <= names
    assert all(rule for chain in left.chains for rule in chain.rules)


def test_a_program_without_the_services_of_the_bench_stays_whole() -> None:
    made = build_program(Family.IPV4, ProgramOptions(), [PickClass(3)], ())
    assert [part for part in PARTS if without(part, made) != made] == []
