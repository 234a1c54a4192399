"""What `nft` makes of our table: it prints it, and in plain mode what it prints loads again and reads back equal.

With this machine's nft (1.0.6 on Debian 12) and with nft 1.1 (`make kernel` puts it into .tools).
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Contents, Ownership
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from tests.contract.driver.conftest import FLOWTABLE

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
FILTER = {Family.IPV4: "ip", Family.IPV6: "ip6"}
OPTIONS = [
    pytest.param(ProgramOptions(PodDetection.CIDR), id="pods by CIDR"),
    pytest.param(ProgramOptions(PodDetection.CIDR, pod_range="10.244.0.0/16"), id="pods by one CIDR"),
    pytest.param(ProgramOptions(PodDetection.CIDR, pod_range="10.240.0.0/13"), id="pods by a CIDR of odd length"),
    pytest.param(ProgramOptions(PodDetection.INTERFACE, "cni0", masquerade_all=True), id="by bridge, masquerade all"),
    pytest.param(ProgramOptions(PodDetection.INTERFACE_PREFIX, "veth"), id="by interface prefix"),
    pytest.param(ProgramOptions(counters=False), id="no counters"),
    pytest.param(ProgramOptions(PodDetection.CIDR, endpoint_counters=True), id="endpoints counted"),
    pytest.param(ProgramOptions(PodDetection.CIDR, names=True), id="with names"),
    *([pytest.param(ProgramOptions(PodDetection.CIDR, flowtable=True), id="offloading")] if FLOWTABLE else []),
]
AFFINITY_UPDATE = re.compile(r"^.*update @affinity .*\n", re.MULTILINE)


NEWER_NFT = Path(__file__).parents[3] / ".tools" / "nft-1.1" / "nft"
NFT_PROGRAMS = [
    pytest.param("nft", id="nft of this machine"),
    pytest.param(
        str(NEWER_NFT),
        id="nft 1.1",
        marks=pytest.mark.skipif(
            not NEWER_NFT.exists() and os.environ.get("CI") != "true", reason="make kernel brings nft 1.1"
        ),
    ),
]


@pytest.fixture(params=NFT_PROGRAMS, autouse=True)
def nft_program(request: pytest.FixtureRequest, kernel: Any) -> None:
    """Every test here runs with each."""
    kernel.nft_program = str(request.param)


@pytest.fixture
def states(service: MakeService) -> dict[Family, list[ServiceState]]:
    """Every kind of element in each family."""
    return {
        Family.IPV4: [
            service("web", "10.96.0.10", "10.244.1.1", "10.244.2.2", affinity=10800, node_port=30080),
            service("shop", "10.96.0.11", "10.244.2.3", allowed=("203.0.113.0/24", "192.0.2.7/32")),
            service("empty", "10.96.0.12"),
        ],
        Family.IPV6: [
            service("web", "fd00:10:96::10", "fd00:244:1::1", "fd00:244:2::2", affinity=10800, node_port=30080),
            service("shop", "fd00:10:96::11", "fd00:244:2::3", allowed=("2001:db8:1::/48", "2001:db8::7/128")),
            service("empty", "fd00:10:96::12"),
        ],
    }


def of_family(options: ProgramOptions, family: Family) -> ProgramOptions:
    """With a range of pods of this family, of as odd a length."""
    if not options.pod_range or family is Family.IPV4:
        return options
    return replace(options, pod_range="fd00:244::/32" if options.pod_range.endswith("/16") else "fd00:240::/29")


def without_counts(text: str) -> str:
    return re.sub(r"counter packets \d+ bytes \d+", "counter", text)


@FAMILIES
@pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
@pytest.mark.parametrize("options", OPTIONS)
def test_nft_prints_the_table_and_names_what_a_person_looks_for(
    kernel: Any,
    states: dict[Family, list[ServiceState]],
    ownership: Ownership,
    options: ProgramOptions,
    family: Family,
) -> None:
    kernel.start(ownership, family, of_family(options, family)).sync(*states[family])

    text = kernel.nft("list ruleset")

    address = "10.96.0.10" if family is Family.IPV4 else "fd00:10:96::10"
    assert re.search(rf"{address} \. tcp \. 80 .*comment \"default/web:http\" : 4:2", text)
    for chain in ("prerouting", "by-source", "refuse", "pick-1", "sticky-2", "learn-10800"):
        assert f"chain {chain} {{" in text
    assert text.count("typeof ") == text.count("numgen random mod 65536") == 2, (
        "of the two maps with slots, and no other"
    )


@FAMILIES
@pytest.mark.parametrize("options", OPTIONS)
def test_the_nft_listing_of_a_plain_table_can_be_loaded_again(
    kernel: Any, states: dict[Family, list[ServiceState]], options: ProgramOptions, family: Family
) -> None:
    agent = kernel.start(Ownership.PLAIN, family, of_family(options, family))
    agent.sync(*states[family])
    before, text = kernel.contents(family), kernel.nft("list ruleset")

    kernel.nft("flush ruleset")
    kernel.nft(loadable(kernel, text, family))

    after: Contents = kernel.contents(family)
    assert after.image == before.image
    assert after.verdicts == before.verdicts
    assert after.hooks == before.hooks
    assert without_counts(kernel.nft("list ruleset")) == without_counts(loadable(kernel, text, family))
    assert agent.changed_by_others(), "the table has another handle"
    agent.sync()
    assert without_counts(kernel.nft("list ruleset")) == without_counts(text)


def loadable(kernel: Any, text: str, family: Family) -> str:
    """The listing; for nft before 1.0.8 without the affinity updates of IPv6, on which its parser ends itself.

    netlink_linearize.c:799 asserts that key and data of a map update have at most 16 bytes.
    """
    version = tuple(map(int, re.findall(r"\d+", kernel.command(kernel.nft_program, "--version").stdout)[:3]))
    return AFFINITY_UPDATE.sub("", text) if family is Family.IPV6 and version < (1, 0, 8) else text


@pytest.mark.parametrize("pod_range", ["", "10.244.0.0/16", "10.240.0.0/13"])
def test_a_listing_that_was_loaded_again_is_adopted_with_its_elements(
    kernel: Any, states: dict[Family, list[ServiceState]], pod_range: str
) -> None:
    """After a reboot with a saved ruleset, say: nothing but the differences is written."""
    options = ProgramOptions(PodDetection.CIDR, pod_range=pod_range)
    kernel.start(options=options).sync(*states[Family.IPV4])
    text = kernel.nft("list ruleset")
    kernel.nft("flush ruleset")
    kernel.nft(text)
    handle = kernel.contents().header.handle

    report = kernel.start(options=options).sync(*states[Family.IPV4])

    assert (report.new_table, report.touched) == (False, 0)
    assert kernel.contents().header.handle == handle
