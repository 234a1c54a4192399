"""The kernel refuses an element: its service is left out and named, everything else commits."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected
from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.image.image import frontend_key, packed_class
from nodeagent.proxy.dataplane.program import schema
from tests.contract.driver.conftest import NODE

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
OVERLAPPING = ("203.0.113.0/24", "203.0.113.128/25")
"""A range inside another one: the kernel's interval sets refuse it (the translation merges them)."""


def is_served(kernel: Any, address: str) -> bool:
    return frontend_key(address, Protocol.TCP, 80) in kernel.elements(schema.FRONTENDS)


@OWNERSHIPS
def test_a_service_with_an_element_the_kernel_refuses_is_left_out_and_the_rest_commits(
    kernel: Any, service: MakeService, ownership: Ownership
) -> None:
    agent = kernel.start(ownership)
    agent.sync(
        service("web", "10.96.0.10", "10.244.1.1"),
        service("bad", "10.96.0.11", "10.244.1.2", allowed=OVERLAPPING),
        service("shop", "10.96.0.12", "10.244.1.3"),
    )

    assert [is_served(kernel, f"10.96.0.1{n}") for n in range(3)] == [True, False, True]
    (problem,) = agent.driver.problems
    assert (problem.subject, problem.reason) == ("Service default/bad", "RejectedByKernel")
    assert "allowed-sources: File exists" in problem.detail


def test_a_refused_service_is_served_once_it_is_corrected(kernel: Any, service: MakeService) -> None:
    agent = kernel.start()
    agent.sync(service("bad", "10.96.0.11", "10.244.1.2", allowed=OVERLAPPING))
    agent.sync(service("bad", "10.96.0.11", "10.244.1.2", allowed=OVERLAPPING[:1]))

    assert is_served(kernel, "10.96.0.11")
    assert agent.driver.problems == ()


def test_a_service_that_was_right_before_is_taken_out_whole(kernel: Any, service: MakeService) -> None:
    """Half of it would be worse: a frontend without its guard."""
    agent = kernel.start()
    agent.sync(service("web", "10.96.0.10", "10.244.1.1"), service("bad", "10.96.0.11", "10.244.1.2"))
    agent.sync(service("bad", "10.96.0.11", "10.244.1.2", allowed=OVERLAPPING))

    assert [is_served(kernel, address) for address in ("10.96.0.10", "10.96.0.11")] == [True, False]
    assert kernel.elements(schema.GUARDED_FRONTENDS) == {}


def test_several_bad_ones_are_found_in_one_pass(kernel: Any, service: MakeService) -> None:
    agent = kernel.start()
    agent.sync(
        service("bad-0", "10.96.0.10", "10.244.1.2", allowed=("192.0.2.0/24", "192.0.2.128/25")),
        service("good", "10.96.0.11", "10.244.1.2"),
        service("bad-2", "10.96.0.12", "10.244.1.2", allowed=OVERLAPPING, at="198.51.100.2"),
    )

    assert {problem.subject for problem in agent.driver.problems} == {"Service default/bad-0", "Service default/bad-2"}
    assert [is_served(kernel, f"10.96.0.1{n}") for n in range(3)] == [False, True, False]


def test_a_refused_element_without_a_service_fails_the_pass_and_is_named(kernel: Any, service: MakeService) -> None:
    agent = kernel.start()
    with pytest.raises(CommitRejected, match="elements of service-cidrs: File exists"):
        agent.sync(service("web", "10.96.0.10", "10.244.1.1"), node=NodeState(("10.96.0.0/16", "10.96.64.0/18")))

    assert agent.sync(node=NodeState(("10.96.0.0/16",))).new_table
    assert is_served(kernel, "10.96.0.10")


@pytest.mark.parametrize("at", [0, 7, 999], ids=["first", "in the middle", "last"])
def test_of_many_elements_in_a_message_the_refused_one_is_named(kernel: Any, service: MakeService, at: int) -> None:
    agent = kernel.start()
    agent.sync()
    keys = [frontend_key(f"10.96.{n >> 8}.{n & 255}", Protocol.TCP, 80) for n in range(1000)]
    there = Transaction(Family.IPV4, agent.driver._specs)
    put(there, {keys[at]: packed_class(1)})
    kernel.run(lambda: agent.socket.commit(there))

    clashing = Transaction(Family.IPV4, agent.driver._specs)
    put(clashing, {key: packed_class(2) for key in keys})
    with pytest.raises(CommitRejected) as caught:
        kernel.run(lambda: agent.socket.commit(clashing))

    (rejection,) = caught.value.rejections
    assert (rejection.set, rejection.key, rejection.reason) == (schema.FRONTENDS, keys[at], "File exists")
    assert set(kernel.elements(schema.FRONTENDS)) == {keys[at]}


def put(transaction: Transaction, elements: dict[bytes, bytes]) -> None:
    transaction.write_delta(Delta({schema.FRONTENDS: elements}))


def test_a_refused_transaction_changes_nothing(kernel: Any, service: MakeService) -> None:
    agent = kernel.start()
    agent.sync(service("web", "10.96.0.10", "10.244.1.1"))
    before, generation = kernel.image(), kernel.generation()
    with pytest.raises(CommitRejected):
        agent.sync(node=replace(NODE, service_cidrs=("10.96.0.0/16", "10.96.64.0/18")))

    assert kernel.image() == before
    assert kernel.generation() == generation
    assert pack_address("10.96.0.10") in before[schema.CLUSTER_IPS]


def test_after_a_look_at_the_kernel_a_service_left_out_is_tried_again(kernel: Any, service: MakeService) -> None:
    agent = kernel.start()
    agent.sync()
    key = frontend_key("10.96.0.10", Protocol.TCP, 80)
    bad = service("bad", "10.96.0.11", "10.244.1.2", allowed=OVERLAPPING)
    agent.sync(service("web", "10.96.0.10", "10.244.1.1"), bad)
    assert [problem.subject for problem in agent.driver.problems] == ["Service default/bad"]

    agent.driver.forget()
    report = agent.sync()

    assert report.touched == 0, "it is refused again, and nothing else changes"
    assert [problem.subject for problem in agent.driver.problems] == ["Service default/bad"]
    assert key in kernel.elements(schema.FRONTENDS)
