"""Traffic in a cluster of real kubelets: from pods, nodes and outside to a Service, all the time, and names asked meanwhile.

Servers and clients are actors in the network namespaces of nodes and pods, so that each answer says which pod gave it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from nodeagent.lab.net.actor_messages import Answer
from nodeagent.lab.net.member import Holding, Loading, Member
from nodeagent.model.addresses import Protocol

HELD_EACH = 5
TIMEOUT_SECONDS = 2.0
INTERVAL_SECONDS = 0.2


@dataclass(frozen=True)
class Access:
    """From a client to an address of a Service."""

    client: str
    kind: str
    address: str
    port: int
    protocol: Protocol

    def __str__(self) -> str:
        return f"{self.client} to {self.kind} {self.address} {self.protocol.name}"


@dataclass(frozen=True)
class Outcome:
    """What became of the traffic of one way. held: connections that were open from the first moment to the last."""

    way: Access
    attempts: int
    failed: tuple[Answer, ...]
    first_answer_after: float
    held: int
    held_lost: int


class Traffic:
    """Runs until the context ends; then `outcomes` has what became of each way."""

    def __init__(self, members: Mapping[str, Member], ways: Sequence[Access]) -> None:
        self._members = members
        self._ways = ways
        self._loads: list[tuple[Access, Loading, Holding]] = []
        self.outcomes: list[Outcome] = []

    def __str__(self) -> str:
        new, failed = sum(one.attempts for one in self.outcomes), sum(len(one.failed) for one in self.outcomes)
        held, lost = sum(one.held for one in self.outcomes), sum(one.held_lost for one in self.outcomes)
        return (
            f"{len(self.outcomes)} ways: {new} new connections and datagrams, {failed} failed; {held} held, {lost} lost"
        )

    def begin(self, stack: ExitStack) -> None:
        """Starts connections on each way and opens those that are held."""
        for way in self._ways:
            member = self._members[way.client]
            holding = stack.enter_context(
                member.hold(way.address, way.port, way.protocol, count=HELD_EACH, timeout=TIMEOUT_SECONDS)
            )
            loading = stack.enter_context(
                member.load(way.address, way.port, way.protocol, interval=INTERVAL_SECONDS, timeout=TIMEOUT_SECONDS)
            )
            self._loads.append((way, loading, holding))

    def end(self) -> None:
        """Asks again on the connections that were held, and counts."""
        for way, loading, holding in self._loads:
            report = loading.stop()
            opened = [answer for answer in holding.opened if not answer.failure]
            again = holding.ask()
            kept = sum(not answer.failure for answer in again)
            self.outcomes.append(
                Outcome(
                    way,
                    report.attempts,
                    report.failed,
                    min(report.first.values(), default=0.0),
                    len(opened),
                    len(opened) - kept,
                )
            )


@contextmanager
def traffic(members: Mapping[str, Member], ways: Sequence[Access]) -> Iterator[Traffic]:
    """Traffic on every way while the block runs."""
    running = Traffic(members, ways)
    with ExitStack() as stack:
        running.begin(stack)
        yield running
        running.end()
