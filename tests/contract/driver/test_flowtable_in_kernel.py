"""Tables that offload established connections, in a kernel with flowtables; and how a kernel without them is recognised."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.flowtable_support import UNSUPPORTED, flowtable_problem
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from tests.contract.driver.conftest import FLOWTABLE

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
with_flowtables = pytest.mark.skipif(not FLOWTABLE, reason="tests/boot/vm runs it on kernels that have flowtables")
OFF, ON = (ProgramOptions(PodDetection.CIDR, flowtable=flowtable) for flowtable in (False, True))


@FAMILIES
def test_a_kernel_without_flowtables_is_recognised_and_nothing_is_left(kernel: Any, family: Family) -> None:
    agent = kernel.start(Ownership.PLAIN, family)

    found = kernel.run(lambda: flowtable_problem(agent.socket, family))

    assert (found is None) is FLOWTABLE
    assert found is None or (found.reason == UNSUPPORTED and family.value in found.detail)
    assert kernel.nft("list ruleset") == ""


@with_flowtables
@FAMILIES
def test_a_table_with_a_flowtable_is_not_probed(kernel: Any, service: MakeService, family: Family) -> None:
    agent = kernel.start(Ownership.PLAIN, family, ON)
    agent.sync(service("web", *_addresses(family)))
    before = kernel.run(agent.socket.generation)

    assert kernel.run(lambda: flowtable_problem(agent.socket, family)) is None
    assert kernel.run(agent.socket.generation) == before


@with_flowtables
@FAMILIES
@pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
def test_switched_on_and_off_in_place_with_all_elements(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership
) -> None:
    web = service("web", *_addresses(family), affinity=60, node_port=30080)
    agent = kernel.start(ownership, family, OFF)
    agent.sync(web)
    for options, there in ((ON, True), (OFF, False)):
        agent.die()
        agent = kernel.start(ownership, family, options)
        report = agent.sync(web)

        assert (report.touched, report.new_table) == (0, False)
        text = kernel.nft("list ruleset")
        assert [word in text for word in ("flowtable established", "flow add @established", "chain forward")] == [
            there
        ] * 3


@with_flowtables
def test_a_flowtable_that_is_not_ours_goes_with_the_next_read_back(kernel: Any, service: MakeService) -> None:
    web = service("web", *_addresses(Family.IPV4))
    kernel.start(Ownership.PLAIN, Family.IPV4, OFF).sync(web)
    kernel.nft("add flowtable ip nodeagent foreign { hook ingress priority 0; }")

    kernel.start(Ownership.PLAIN, Family.IPV4, OFF).sync(web)

    assert "flowtable" not in kernel.nft("list ruleset")


def _addresses(family: Family) -> tuple[str, str, str]:
    if family is Family.IPV4:
        return "10.96.0.10", "10.244.1.1", "10.244.2.2"
    return "fd00:10:96::10", "fd00:244:1::1", "fd00:244:2::2"
