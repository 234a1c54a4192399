"""What docs/performance.md says of established connections, and what is measured for it."""

import json

import pytest

from nodeagent.model.addresses import Family
from tests.bench.established import AGENT, COLUMNS, NO_PROXY, OFFLOADING, layout, objects, one_rule, ratio
from tests.bench.new_connection import PLANS
from tests.bench.performance import DATA, document, established_section

HERE = {
    family.value: {
        NO_PROXY: dict.fromkeys(COLUMNS, (4324.4, 1.0)),
        AGENT: dict.fromkeys(COLUMNS, (4410.6, 1.0199)),
    }
    for family in Family
}
GUEST = {"IPv4": {**HERE["IPv4"], OFFLOADING: dict.fromkeys(COLUMNS, (2162.2, 0.5))}}
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)


def test_without_the_figures_there_is_no_section() -> None:
    assert list(established_section({})) == []


def test_each_family_and_kernel_has_a_table_with_ratios_and_packets_a_second() -> None:
    text = "\n".join(established_section({"established": HERE, "established in guests": {"Debian 12": GUEST}}))

    assert text.count("| no proxy | 4,324 (1.000) | 4,324 (1.000) | 4,324 (1.000) | 231,246 |") == 3
    assert text.count("| nodeagent | 4,411 (1.020) |") == 3
    assert "On Debian 12's own kernel" in text
    assert "| nodeagent, offloading | 2,162 (0.500) | 2,162 (0.500) | 2,162 (0.500) | 462,492 |" in text


def test_it_has_its_place_in_the_document() -> None:
    figures = json.loads(DATA.read_text()) | {"established": HERE, "established in guests": {"Debian 12": GUEST}}
    heads = [line for line in document(figures).splitlines() if line.startswith("## ")]

    first = heads.index("## The first packet of a connection")
    assert heads[first + 1] == "## Established connections"


@FAMILIES
def test_the_services_of_all_ways_have_both_protocols(family: Family) -> None:
    plan = PLANS[family]
    items = json.loads(objects(plan, 2, 3))["items"]
    ports = [item["spec"]["ports"] for item in items if item["kind"] == "Service"]
    assert [[port["protocol"] for port in some] for some in ports] == [["TCP", "UDP"]] * 2
    slices = [item["ports"] for item in items if item["kind"] == "EndpointSlice"]
    assert [[port["port"] for port in some] for some in slices] == [[8080, 8081]] * 2

    assert f"add element {plan.nft} kube-proxy service-ips {{ {plan.service(0)} . udp . 81 : goto udp-0 }}" in layout(
        plan, 2, 3
    )
    assert one_rule(plan, 2, 3).count("dnat to") == 2


def test_a_ratio_is_that_of_turns_not_of_medians() -> None:
    assert ratio([10.0, 30.0, 33.0], [10.0, 20.0, 30.0]) == pytest.approx(1.1)
