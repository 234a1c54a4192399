"""Tracks how upstream servers answer; decides in which order they are asked, when they are probed, and what is wrong with them. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nodeagent.model.backoff import Backoff
from nodeagent.names.upstream.limits import HealthLimits
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_doubt import Doubt
from nodeagent.names.upstream.upstream_fault import FAILING, LOOP, ServerFault, fault_of
from nodeagent.names.upstream.upstream_question import Asked


@dataclass(slots=True)
class ServerHealth:
    """What is known of one upstream server.
    failures: in a row. pauses: between probes since it went down. probe_at: None if no probe is due. rests_until: until then no probe
    is due because of a new doubt. fault: found by a probe. tcp_fault: as `fault`, of TCP. denies_own: it knows
    that a name of our own does not exist. tcp_doubt: an answer was cut off, and none has come by TCP since. loops: it sends our questions back to us. copy: a question that another server has answered. asked_at,
    malformed_at: when it was last asked, and last sent a malformed answer. plain_until: until then it is asked without EDNS."""

    failures: int = 0
    pauses: int = 0
    probe_at: float | None = None
    is_probed: bool = False
    rests_until: float = 0.0
    doubt: Doubt = field(default_factory=Doubt)
    fault: ServerFault | None = None
    denies_own: bool = False
    tcp_doubt: bool = False
    tcp_fault: ServerFault | None = None
    loops: bool = False
    copy: Asked | None = None
    asked_at: float = 0.0
    malformed_at: float = -1.0
    plain_until: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server, for metrics and logs."""

    server: Server
    up: bool
    loops: bool
    failures: int
    faults: tuple[ServerFault, ...]


class Health:
    """Times are the caller's. A server is down after some failures in a row, and up again with its next answer.

    Each new server is probed once, so that a loop is found before a client waits for it. Servers that are down or send
    our questions back are probed again and again, with growing pauses. A question that is answered late, with an error or not at all
    is a doubt: a probe tells whether the server is at fault (`Doubt.question`). A good answer in time ends a fault.
    """

    def __init__(self, limits: HealthLimits, changed: Callable[[], None] = lambda: None) -> None:
        """changed: called when a probe becomes due earlier than before."""
        self._limits = limits
        self._backoff = Backoff(limits.first, limits.longest)
        self._changed = changed
        self._records: dict[Server, ServerHealth] = {}

    def set_servers(self, servers: Collection[Server], now: float) -> None:
        """Sets the servers; the state of all others is dropped."""
        self._records = {
            server: self._records.get(server) or ServerHealth(probe_at=now, asked_at=now) for server in servers
        }

    @property
    def states(self) -> tuple[ServerState, ...]:
        return tuple(
            ServerState(server, self.is_up(server), record.loops, record.failures, tuple(_faults(record)))
            for server, record in self._records.items()
        )

    def is_up(self, server: Server) -> bool:
        record = self._records.get(server)
        return record is None or not (record.loops or record.fault or record.failures >= self._limits.failures)

    def in_order(self, servers: Iterable[Server]) -> tuple[Server, ...]:
        """Returns the servers that are up, in their order, then those that are down; not those that lead back to us."""
        usable = [server for server in servers if not self._record_of(server).loops]
        return tuple(sorted(usable, key=lambda server: not self.is_up(server)))

    def all_down(self, servers: Sequence[Server]) -> bool:
        """Returns whether no server is expected to answer."""
        return not any(map(self.is_up, servers))

    def answered(self, server: Server, asked: Asked, rcode: int, seconds: float, now: float) -> None:
        """Records that the server answered a question after this many seconds."""
        record = self._record_of(server)
        record.failures = 0
        record.loops = False
        if fault_of(rcode, seconds, self._limits.slow) is not None:
            self.doubt(server, asked, now)
            return
        record.doubt.answered(asked)
        record.fault = record.copy = None
        if not record.tcp_doubt:
            record.pauses, record.probe_at = 0, None

    def failed(self, server: Server, asked: Asked, now: float) -> None:
        """Records that the server did not answer, or not in time."""
        record = self._record_of(server)
        record.failures += 1
        if record.failures >= self._limits.failures:
            self.doubt(server, asked, now)

    def doubt(self, server: Server, asked: Asked, now: float) -> None:
        """Records a question that the server has not answered well up to now."""
        record = self._record_of(server)
        record.doubt.failed(asked)
        self._probe_soon(record, now)

    def mark_malformed(self, server: Server, asked: Asked, now: float) -> None:
        """Records that a message of the server is no answer to this question."""
        self._record_of(server).malformed_at = now
        self.doubt(server, asked, now)

    def mark_cut_off(self, server: Server) -> None:
        """Records that an answer by UDP was cut off, so that the server is now asked by TCP."""
        self._record_of(server).tcp_doubt = True

    def mark_tcp(self, server: Server, now: float, *, answers: bool) -> None:
        """Records whether the server answered by TCP after its answer by UDP was cut off."""
        record = self._record_of(server)
        record.tcp_doubt = not answers
        if answers:
            record.tcp_fault = None
        else:
            self._probe_soon(record, now)

    def asks(self, server: Server, now: float) -> None:
        """Records that the server is asked a question."""
        self._record_of(server).asked_at = now

    def copy(self, servers: Iterable[Server], asked: Asked, now: float) -> None:
        """Gives a question that one of these servers answered well to those that have not been asked for long, since nobody would notice
        before they are needed that they fail; and to those that are in doubt."""
        for server in servers:
            record = self._record_of(server)
            record.doubt.answered_elsewhere(asked)
            if now - record.asked_at >= self._limits.unasked and record.probe_at is None and not record.is_probed:
                record.copy, record.asked_at = asked, now
                self._probe_soon(record, now)

    def mark_loop(self, server: Server, now: float) -> bool:
        """Records that our own question came back from this server. Returns whether that is new."""
        record = self._record_of(server)
        before, record.loops = record.loops, True
        record.is_probed = False
        self._pause(record, now)
        return not before

    def question(self, server: Server) -> Asked | None:
        """Returns what a probe of the server asks; None for a name of our own."""
        record = self._record_of(server)
        if record.loops or not (record.copy or record.doubt):
            return None
        return record.copy or record.doubt.question()

    def is_suspected(self, server: Server) -> bool:
        """Returns whether the server is suspected of a fault that no probe has found yet."""
        record = self._record_of(server)
        return record.fault is None and bool(record.copy or record.doubt)

    def is_tcp_suspected(self, server: Server) -> bool:
        """Returns whether an answer was cut off, and none has come by TCP since."""
        return self._record_of(server).tcp_doubt

    def was_malformed(self, server: Server, since: float) -> bool:
        """Returns whether the server has sent a malformed answer, at `since` or later."""
        return self._record_of(server).malformed_at >= since

    def probed_by_tcp(self, server: Server, fault: ServerFault | None) -> None:
        """Records what a probe by TCP has found."""
        record = self._record_of(server)
        record.tcp_fault = fault
        if fault is None:
            record.tcp_doubt = False

    def probed(self, server: Server, asked: Asked, fault: ServerFault | None, now: float, *, own: bool) -> None:
        """Records what a probe with this question has found. own: it asked for a name of our own. An error for that is no fault of a
        server that never answered one otherwise: it may be for some zones only."""
        record = self._record_of(server)
        if own and fault is not None and fault.kind == FAILING and not record.denies_own and not record.fault:
            fault = None
        elif own and fault is None:
            record.denies_own = True
        record.is_probed = False
        copied, record.copy = record.copy is not None, None
        if fault is None:
            record.loops, record.failures, record.fault = False, 0, None
            record.rests_until = now + self._limits.rest
            record.doubt.passed(asked)
            if record.tcp_doubt:
                self._pause(record, now)
            else:
                record.pauses = 0
                if record.doubt.is_broad:
                    self._probe_soon(record, now)
        elif copied:
            self.doubt(server, asked, now)
        else:
            record.failures += 1
            if record.doubt:
                record.fault = fault
            if record.loops or record.fault or record.failures >= self._limits.failures:
                self._pause(record, now)

    def due(self, now: float) -> tuple[Server, ...]:
        """Returns the servers to probe now; each is returned once until its probe has ended."""
        found = []
        for server, record in self._records.items():
            if record.probe_at is not None and record.probe_at <= now:
                record.probe_at, record.is_probed = None, True
                found.append(server)
        return tuple(found)

    def next_probe(self) -> float | None:
        """Returns when the next probe is due; None if no probe is due."""
        return min((r.probe_at for r in self._records.values() if r.probe_at is not None), default=None)

    def mark_without_edns(self, server: Server, now: float) -> None:
        """Records that the server does not support EDNS."""
        self._record_of(server).plain_until = now + self._limits.plain

    def takes_edns(self, server: Server, now: float) -> bool:
        return now >= self._record_of(server).plain_until

    def _probe_soon(self, record: ServerHealth, now: float) -> None:
        if record.probe_at is None and not record.is_probed:
            record.probe_at = max(now, record.rests_until)
            self._changed()

    def _pause(self, record: ServerHealth, now: float) -> None:
        record.pauses += 1
        record.probe_at = now + self._backoff.seconds(record.pauses)
        self._changed()

    def _record_of(self, server: Server) -> ServerHealth:
        """Returns the record of a server; a new, unstored one if the server is unknown."""
        return self._records.get(server) or ServerHealth()


def _faults(record: ServerHealth) -> Iterator[ServerFault]:
    if record.loops:
        yield ServerFault(LOOP)
    elif record.fault is not None:
        yield record.fault
    if record.tcp_fault is not None:
        yield record.tcp_fault
