"""When the agent reads the chains of others, and what it keeps of them."""

import asyncio

from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.errors import DumpInterrupted
from nodeagent.proxy.dataplane.hook_order_watch import HookOrderWatch, Seen
from nodeagent.proxy.dataplane.walk_rest import REST

EARLY = Problem("hook order", "TranslatedBefore", "somebody is early")
READ_SECONDS = 0.5


class Node:
    """Reading the chains takes half a second. Time stands otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.generation = 1
        self.early: tuple[Problem, ...] = (EARLY,)
        self.disturbed = False
        self.reads = 0
        self.watch = HookOrderWatch(self._read, lambda: self.now)

    def _read(self, known: int | None) -> Seen | None:
        if known == self.generation:
            return None
        self.reads += 1
        self.now += READ_SECONDS
        if self.disturbed:
            raise DumpInterrupted("others change it")
        return self.generation, self.early

    def look(self) -> tuple[Problem, ...]:
        asyncio.run(self.watch.look())
        return self.watch.problems()


def test_chains_are_read_at_the_start_and_after_a_change_only() -> None:
    node = Node()
    assert (node.look(), node.reads) == ((EARLY,), 1)
    node.now += REST
    assert (node.look(), node.reads) == ((EARLY,), 1)
    node.generation, node.early = 2, ()
    assert (node.look(), node.reads) == ((), 2)


def test_reading_costs_a_hundredth_of_the_time() -> None:
    node = Node()
    node.look()
    node.generation, node.early = 2, ()
    node.now += REST * READ_SECONDS - 1
    assert (node.look(), node.reads) == ((EARLY,), 1)
    node.now += 1
    assert (node.look(), node.reads) == ((), 2)


def test_a_failed_read_is_repeated_later() -> None:
    node = Node()
    node.disturbed = True
    assert node.look() == ()
    node.disturbed = False
    node.now += REST
    assert node.look() == (EARLY,)
