"""Tracks which upstream servers answer; decides in which order they are asked and when they are probed. Pure."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from nodeagent.model.backoff import Backoff
from nodeagent.names.upstream.limits import HealthLimits
from nodeagent.names.upstream.upstream_address import Server


@dataclass(slots=True)
class ServerHealth:
    """failures: in a row. pauses: between probes since it went down. probe_at: None if no probe is due. loops: it sends
    our questions back to us. plain_until: until then it is asked without EDNS."""

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
    """Times are the caller's. A server is down after some failures in a row, and up again with its next answer.

    Each new server is probed once, so that a loop is found before a client waits for it. Servers that are down or send
    our questions back are probed again and again, with growing pauses.
    """

    def __init__(self, limits: HealthLimits, changed: Callable[[], None] = lambda: None) -> None:
        """changed: called when a probe becomes due earlier than before."""
        self._limits = limits
        self._backoff = Backoff(limits.first, limits.longest)
        self._changed = changed
        self._records: dict[Server, ServerHealth] = {}

    def set_servers(self, servers: Collection[Server], now: float) -> None:
        """Sets the servers; the state of all others is dropped."""
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
        """Returns the servers that are up, in their order, then those that are down; not those that lead back to us."""
        usable = [server for server in servers if not self._record_of(server).loops]
        return tuple(sorted(usable, key=lambda server: not self.is_up(server)))

    def all_down(self, servers: Sequence[Server]) -> bool:
        """Returns whether no server is expected to answer."""
        return not any(map(self.is_up, servers))

    def answered(self, server: Server) -> None:
        """Records that the server answered a question."""
        record = self._record_of(server)
        record.failures = record.pauses = 0
        record.loops = False
        record.probe_at = None

    def failed(self, server: Server, now: float) -> None:
        """Records that the server did not answer, or not in time."""
        record = self._record_of(server)
        record.failures += 1
        if record.failures >= self._limits.failures and record.probe_at is None:
            self._pause(record, now)

    def mark_loop(self, server: Server, now: float) -> bool:
        """Records that our own question came back from this server. Returns whether that is new."""
        record = self._record_of(server)
        before, record.loops = record.loops, True
        self._pause(record, now)
        return not before

    def probe_failed(self, server: Server, now: float) -> None:
        """Records a failed probe. The next one follows if the server is down; otherwise its next question decides."""
        record = self._record_of(server)
        record.failures += 1
        if record.loops or record.failures >= self._limits.failures:
            self._pause(record, now)

    def due(self, now: float) -> tuple[Server, ...]:
        """Returns the servers to probe now; each is returned once until its probe has ended."""
        found = []
        for server, record in self._records.items():
            if record.probe_at is not None and record.probe_at <= now:
                record.probe_at = None
                found.append(server)
        return tuple(found)

    def next_probe(self) -> float | None:
        """Returns when the next probe is due; None if none is."""
        return min((r.probe_at for r in self._records.values() if r.probe_at is not None), default=None)

    def mark_without_edns(self, server: Server, now: float) -> None:
        """Records that the server does not support EDNS."""
        self._record_of(server).plain_until = now + self._limits.plain

    def takes_edns(self, server: Server, now: float) -> bool:
        return now >= self._record_of(server).plain_until

    def _pause(self, record: ServerHealth, now: float) -> None:
        record.pauses += 1
        record.probe_at = now + self._backoff.seconds(record.pauses)
        self._changed()

    def _record_of(self, server: Server) -> ServerHealth:
        """Returns the record of a server; a new, unstored one if the server is unknown."""
        return self._records.get(server) or ServerHealth()
