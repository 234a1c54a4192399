"""Health as the monitor reads it from the queue of changes and the reports of passes."""

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

    def begin_pass(self) -> None:
        self.started, self.oldest = self.now, self.queue.take().oldest

    def finish_pass(self, *, ok: bool = True) -> None:
        """The pass that was begun ends now."""
        result = {Family.IPV4: TableReport(error=None if ok else "refused")}
        waited = 0.0 if self.oldest is None else self.started - self.oldest
        self.queue.finish()
        self.monitor.passed(PassReport(self.started, self.now, result, waited_seconds=waited))


@pytest.fixture
def node() -> Node:
    node = Node()
    node.begin_pass()
    node.finish_pass()
    return node


def test_a_pass_that_hangs_over_a_change_makes_unhealthy(node: Node) -> None:
    node.queue.service_changed(WEB)
    node.begin_pass()
    node.now = 60
    assert not node.monitor.is_healthy()
    node.finish_pass()
    assert node.monitor.is_healthy()


def test_a_change_during_a_pass_waits_from_its_arrival(node: Node) -> None:
    node.queue.service_changed(WEB)
    node.begin_pass()
    node.now = 30
    node.queue.service_changed(WEB)
    node.now = 40
    node.finish_pass()
    node.now = 89
    assert node.monitor.is_healthy()
    node.now = 90
    assert not node.monitor.is_healthy()


def test_a_change_is_waited_for_until_it_is_programmed(node: Node) -> None:
    seen = [node.monitor.oldest_change]
    node.now = 5
    node.queue.service_changed(WEB)
    seen.append(node.monitor.oldest_change)
    node.now = 6
    node.begin_pass()
    seen.append(node.monitor.oldest_change)  # the pass runs
    node.finish_pass(ok=False)
    seen.append(node.monitor.oldest_change)  # it failed
    node.now = 7
    node.begin_pass()
    node.finish_pass()
    seen.append(node.monitor.oldest_change)
    assert seen == [None, 5, 5, 5, None]


def test_a_change_before_the_first_pass_is_waited_for_too() -> None:
    node = Node()
    node.now = 3
    node.queue.service_changed(WEB)
    node.now = 4
    assert node.monitor.oldest_change == 3
