"""A kernel that refuses, interrupts or loses one request in ten: what is read is complete, and what is written is in force or not believed.

The other tests of this directory have such a kernel too, but it always answers whether a commit was done.
"""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.removal import remove_tables
from nodeagent.proxy.dataplane.errors import KernelBusy
from tests.contract.driver.conftest import SPECS, Kernel
from tests.harness.effort import examples

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)


def services(service: MakeService, *, endpoints: int = 4) -> list[ServiceState]:
    pods = [f"10.244.2.{number}" for number in range(2, 2 + endpoints)]
    web = service("web", "10.96.0.10", *pods, affinity=60, node_port=30080, allowed=("203.0.113.0/24",))
    return [web, *(service(f"n{number}", f"10.96.1.{number}", *pods) for number in range(2, 20))]


def test_a_table_is_read_whole(kernel: Kernel, service: MakeService) -> None:
    kernel.start().sync(*services(service))
    whole = kernel.contents()
    for _ in range(examples(5)):
        socket = kernel.busy_socket()
        found = kernel.run(KernelTable(socket, Family.IPV4, SPECS).read)
        socket.close()
        assert found is not None
        assert (found.image, found.verdicts, found.sets) == (whole.image, whole.verdicts, whole.sets)
        assert (found.hooks, found.policies, found.rules) == (whole.hooks, whole.policies, whole.rules)


@OWNERSHIPS
def test_no_service_is_blamed_for_a_kernel_without_memory(
    kernel: Kernel, service: MakeService, ownership: Ownership
) -> None:
    before, after = services(service), services(service, endpoints=2)
    agent = kernel.start(ownership)
    agent.sync(*before)
    shown = kernel.image()

    kernel.faults.proportion = 1.0
    with pytest.raises(KernelBusy):
        agent.sync(*after)
    assert agent.driver.problems == ()
    assert kernel.image() == shown

    kernel.faults.proportion = 0.0
    assert not agent.sync(*after).problems
    assert kernel.image() != shown


@OWNERSHIPS
def test_the_table_is_as_wanted_in_the_end(kernel: Kernel, service: MakeService, ownership: Ownership) -> None:
    """Whatever becomes of single commits, and of the answers to them."""
    kernel.faults.commits_are_answered = False
    wanted = [services(service, endpoints=number) for number in (1, 4, 2)]
    images: list[Any] = []
    for states in wanted:
        twin = kernel.start(ownership)
        twin.sync(*states)
        images.append(keys_of(kernel))
        twin.die()
    agent = kernel.start(ownership)
    agent.sync(*wanted[0])
    for turn in range(examples(12)):
        report = agent.sync(*wanted[turn % 3])
        assert not report.problems
        assert not report.new_table, "nothing is so wrong that it must be rebuilt"
        assert keys_of(kernel) == images[turn % 3]
    agent.die()
    socket = kernel.busy_socket()
    assert kernel.run(lambda: remove_tables(socket)) == (Family.IPV4,)
    socket.close()


def keys_of(kernel: Kernel) -> dict[str, set[bytes]]:
    return {name: set(found) for name, found in kernel.image().items()}
