"""Somebody takes our plain table away while it is read or written, at any moment: a pass fails at most, and the next repairs."""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import pytest

from nodeagent.model.frontend import ServiceState
from nodeagent.model.problem import Retryable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
GONE = "delete table ip nodeagent"
MADE_ANEW = f"{GONE}; add table ip nodeagent; add chain ip nodeagent theirs"
ATTEMPTS = 5
LEAST_REQUESTS = 30
"""Of a pass that reads all back: table, sets, chains, rules, the elements of each set and their number."""


class DisturbedSocket(Ruleset):
    """Before request number `at` somebody does `what`; 0: nobody does."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0
        self.what = ""
        self.asked = 0

    @property
    def disturbed(self) -> bool:
        return 0 < self.at <= self.asked

    def disturb(self, at: int, what: str) -> None:
        self.at, self.what, self.asked = at, what, 0

    def _step(self) -> None:
        self.asked += 1
        if self.asked == self.at:
            subprocess.run(["nft", self.what], check=True, timeout=60)

    def commit(self, transaction: Transaction, known: int | None = None) -> list[bytes]:
        self._step()
        return super().commit(transaction, known)

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[memoryview]:
        self._step()
        return super().dump(kind, family, body)

    def fetch(self, kind: int, family: int, body: bytes) -> Iterator[memoryview]:
        self._step()
        return super().fetch(kind, family, body)

    def count_confirmed(
        self, kind: int, family: int, body: bytes, start: int, expected: Iterable[tuple[bytes, bytes]], *, exact: bool
    ) -> int:
        self._step()
        return super().count_confirmed(kind, family, body, start, expected, exact=exact)

    def get(self, kind: int, family: int, body: bytes) -> memoryview:
        self._step()
        return super().get(kind, family, body)


@pytest.mark.parametrize(
    ("what", "moments"), [(GONE, count(1, 2)), (MADE_ANEW, count(2, 6))], ids=["gone", "another in its place"]
)
def test_a_table_that_vanishes_at_any_moment_is_there_again(
    kernel: Any, service: MakeService, what: str, moments: Iterator[int]
) -> None:
    """After a restart or an hour: all is read back, and something is to be written. Of two requests in a row one is enough: each set
    is read by two, its elements and their number."""
    socket = kernel.run(DisturbedSocket)
    agent = kernel.start(socket=socket)
    states = [service("web", "10.96.0.10", "10.244.1.2", "10.244.2.3", affinity=60, node_port=30080)]
    agent.sync(*states, service("api", "10.96.0.11", "10.244.2.9"))
    for at in moments:
        agent.driver.forget()
        socket.disturb(at, what)
        changed = service("api", "10.96.0.11", f"10.244.3.{at}")
        for _ in range(ATTEMPTS):
            try:
                agent.sync(changed)
            except Retryable:
                continue
            if not agent.changed_by_others():
                break
        else:
            raise AssertionError(f"not right again after request {at}")
        if not socket.disturbed:
            break
        socket.disturb(0, "")
        successor = kernel.start()
        assert successor.sync(*states, changed).messages == 0, f"differs after request {at}"
        successor.die()
    assert at > LEAST_REQUESTS
