"""When the agent walks over the connection table for source ports, and what it says of what it found."""

import asyncio
from collections.abc import Callable

from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.source_port_watch import SourcePortWatch
from nodeagent.proxy.dataplane.source_ports import PORTS, PortShortage
from nodeagent.proxy.dataplane.walk_rest import REST

ENDPOINT = ("10.244.1.10", 8080)
WALK_SECONDS = 0.25


class Node:
    """A walk takes a quarter of a second. Time stands otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.crowded = True
        self.walks = 0
        self.error: OSError | None = None
        self.found: tuple[PortShortage, ...] = (PortShortage(Protocol.TCP, "10.244.1.1", ENDPOINT, 60000),)
        self.watch = SourcePortWatch(lambda: self.crowded, self._walk, lambda: self.now)

    def _walk(self, stop: Callable[[], bool]) -> tuple[PortShortage, ...]:
        assert not stop()
        self.walks += 1
        self.now += WALK_SECONDS
        if self.error is not None:
            raise self.error
        return self.found

    def look(self) -> list[str]:
        asyncio.run(self.watch.look())
        return [one.detail for one in self.watch.problems()]


def test_without_so_many_connections_nothing_is_read() -> None:
    node = Node()
    node.crowded = False
    assert (node.look(), node.walks, node.watch.taken) == ([], 0, 0)


def test_a_walk_costs_a_hundredth_of_the_time() -> None:
    node = Node()
    assert (len(node.look()), node.walks, node.watch.taken) == (1, 1, 60000)
    node.now += REST * WALK_SECONDS - 0.1
    assert (len(node.look()), node.walks) == (1, 1)
    node.now += 0.1
    node.found = ()
    assert (node.look(), node.walks) == ([], 2)


def test_an_empty_table_ends_it_at_once_and_does_not_shorten_the_rest() -> None:
    node = Node()
    node.look()
    node.crowded = False
    assert node.look() == []
    node.crowded = True
    assert (node.look(), node.walks) == ([], 1)


def test_the_text_stays_the_same_while_the_count_changes() -> None:
    node = Node()
    first = node.look()
    node.now += REST
    node.found = (PortShortage(Protocol.TCP, "10.244.1.1", ENDPOINT, 61000),)
    assert node.look() == first
    node.now += REST
    node.found = (PortShortage(Protocol.TCP, "10.244.1.1", ENDPOINT, PORTS),)
    [full] = node.look()
    assert full.startswith(
        "all of the 64512 ports of 10.244.1.1 towards 10.244.1.10:8080/TCP are taken: new connections"
    )


def test_a_table_that_cannot_be_read_is_no_problem() -> None:
    node = Node()
    node.error = PermissionError(1, "no")
    assert node.look() == []
