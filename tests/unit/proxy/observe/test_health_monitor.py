"""The monitor between store and change queue: what it notices that the queue cannot tell."""

import asyncio

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.observe.health_monitor import HealthMonitor

WEB = ObjectKey("default", "web")


class Node:
    """A monitor over a real queue, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queue = ChangeQueue(lambda: self.now)
        self.monitor = HealthMonitor(
            self.queue,
            [Family.IPV4],
            timeout_seconds=60,
            clock=lambda: self.now,
        )

    def finish_pass(self, *, ok: bool = True) -> None:
        """A pass that was begun with `queue.take()` ends now."""
        result = {Family.IPV4: TableReport(error=None if ok else "refused")}
        self.monitor.passed(PassReport(self.now, self.now, result))


@pytest.fixture
def node() -> Node:
    node = Node()
    node.queue.take()
    node.finish_pass()
    return node


def test_changes_are_passed_on(node: Node) -> None:
    node.monitor.service_changed(WEB)
    node.monitor.service_cidrs_changed()
    node.monitor.node_changed()
    taken = node.queue.take()
    assert (taken.services, taken.node) == (frozenset({WEB}), True)


def test_that_lists_are_complete_is_passed_on(node: Node) -> None:
    async def scenario() -> None:
        node.monitor.synced()
        async with asyncio.timeout(60):
            await node.queue.wait_synced()

    asyncio.run(scenario())


def test_a_pass_that_hangs_over_a_change_makes_unhealthy(node: Node) -> None:
    node.monitor.service_changed(WEB)
    node.queue.take()
    assert node.queue.oldest is None, "the queue knows of nothing that waits"
    node.now = 60
    assert not node.monitor.is_healthy()
    node.finish_pass()
    assert node.monitor.is_healthy()


def test_what_comes_during_a_pass_waits_from_then_on(node: Node) -> None:
    node.monitor.service_changed(WEB)
    node.queue.take()
    node.now = 30
    node.monitor.service_changed(WEB)
    node.now = 40
    node.finish_pass()
    node.now = 89
    assert node.monitor.is_healthy()
    node.now = 90
    assert not node.monitor.is_healthy()


def test_a_change_is_waited_for_until_it_is_programmed(node: Node) -> None:
    seen = [node.monitor.oldest_change]
    node.now = 5
    node.monitor.service_changed(WEB)
    seen.append(node.monitor.oldest_change)
    node.now = 6
    node.queue.take()
    seen.append(node.monitor.oldest_change)  # the pass runs
    node.finish_pass(ok=False)
    seen.append(node.monitor.oldest_change)  # it failed
    node.now = 7
    node.finish_pass()
    seen.append(node.monitor.oldest_change)
    assert seen == [None, 5, 5, 5, None]


def test_a_change_before_the_first_pass_is_waited_for_too() -> None:
    node = Node()
    node.now = 3
    node.monitor.service_changed(WEB)
    node.now = 4
    assert node.monitor.oldest_change == 3
