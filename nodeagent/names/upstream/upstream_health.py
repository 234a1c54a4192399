"""Which servers answer at the moment: who is asked first, who last, who never, and who is probed when. Pure."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from nodeagent.model.backoff import Backoff
from nodeagent.names.upstream.limits import HealthLimits
from nodeagent.names.upstream.upstream_address import Server


@dataclass(slots=True)
class ServerHealth:
    """failures: in a row. pauses: between probes since it went down. probe_at: None while it needs none.

    loops: it leads back to us. plain_until: until then it is asked without EDNS.
    """

    failures: int = 0
    pauses: int = 0
    probe_at: float | None = None
    loops: bool = False
    plain_until: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server, for metrics and logs."""

    server: Server
    up: bool
    loops: bool
    failures: int


class Health:
    """Times are given by the caller. A server is down after some failures in a row, and up with its next answer.

    Every server is probed once when it is new, so that a loop is found before anybody waits for it, and those that
    are down or lead back to us are probed again and again, with growing pauses.
    """

    def __init__(self, limits: HealthLimits, changed: Callable[[], None] = lambda: None) -> None:
        """changed: called when a probe becomes due earlier than it was."""
        self._limits = limits
        self._backoff = Backoff(limits.first, limits.longest)
        self._changed = changed
        self._records: dict[Server, ServerHealth] = {}

    def know(self, servers: Collection[Server], now: float) -> None:
        """These are the servers from now on; what is known of the others is forgotten."""
        self._records = {server: self._records.get(server) or ServerHealth(probe_at=now) for server in servers}

    @property
    def states(self) -> tuple[ServerState, ...]:
        return tuple(
            ServerState(server, self.is_up(server), record.loops, record.failures)
            for server, record in self._records.items()
        )

    def is_up(self, server: Server) -> bool:
        record = self._records.get(server)
        return record is None or (not record.loops and record.failures < self._limits.failures)

    def in_order(self, servers: Iterable[Server]) -> tuple[Server, ...]:
        """Those that are up, in their order, then those that are down; without any that leads back to us."""
        usable = [server for server in servers if not self._of(server).loops]
        return tuple(sorted(usable, key=lambda server: not self.is_up(server)))

    def all_down(self, servers: Sequence[Server]) -> bool:
        """Whether nobody is expected to answer."""
        return not any(map(self.is_up, servers))

    def answered(self, server: Server) -> None:
        """It has sent something that answers our question."""
        record = self._of(server)
        record.failures = record.pauses = 0
        record.loops = False
        record.probe_at = None

    def failed(self, server: Server, now: float) -> None:
        """It did not answer, or not in time."""
        record = self._of(server)
        record.failures += 1
        if record.failures >= self._limits.failures and record.probe_at is None:
            self._pause(record, now)

    def loops(self, server: Server, now: float) -> bool:
        """Our own question came back to us from it; whether that is news."""
        record = self._of(server)
        before, record.loops = record.loops, True
        self._pause(record, now)
        return not before

    def probe_failed(self, server: Server, now: float) -> None:
        """Once more later if it is down; one that has not failed otherwise gets the benefit of the doubt."""
        record = self._of(server)
        record.failures += 1
        if record.loops or record.failures >= self._limits.failures:
            self._pause(record, now)

    def due(self, now: float) -> tuple[Server, ...]:
        """Servers to probe now; each is named once until its probe has ended."""
        found = []
        for server, record in self._records.items():
            if record.probe_at is not None and record.probe_at <= now:
                record.probe_at = None
                found.append(server)
        return tuple(found)

    def next_probe(self) -> float | None:
        """When the next one is due; None while none is."""
        return min((r.probe_at for r in self._records.values() if r.probe_at is not None), default=None)

    def plain(self, server: Server, now: float) -> None:
        """It does not know EDNS."""
        self._of(server).plain_until = now + self._limits.plain

    def takes_edns(self, server: Server, now: float) -> bool:
        return now >= self._of(server).plain_until

    def _pause(self, record: ServerHealth, now: float) -> None:
        record.pauses += 1
        record.probe_at = now + self._backoff.seconds(record.pauses)
        self._changed()

    def _of(self, server: Server) -> ServerHealth:
        """A server we no longer know is remembered by nobody."""
        return self._records.get(server) or ServerHealth()
