"""How long requests last and how long to wait between them. Time and chance are injected; nothing here sleeps."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from nodeagent.model.backoff import Backoff


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; the figures of client-go's reflector where it has them, but a shorter first wait: a restart takes a second.

    watch_min, watch_max: how long a watch is requested to last (random, so that nodes do not come back all at once).
    grace: how much longer it may last before it is given up as dead.
    initial_silence: see `nodeagent.proxy.source.watch.Request.awaits_initial_state`.
    backoff: bounds of the waits after failures.
    healthy: a watch that lasted this long ends a series of failures.
    brief: a watch that the server ended sooner, and that brought nothing, has failed.
    spacing: between the openings of two watches of which the first ended in order.
    absent: between checks for what a server lacks or refuses: an optional resource, EndpointSlices, selectors.
    silence: of a server with open watches, until it is probed for a sign of life; probing: the part of the time that probes may take:
    a slow server is probed less often, but after `longest_silence`. late: after that a probe without an answer is a problem; answer: after that the
    server counts as gone, and its watches are given up.
    bookmarks_missed: this many intervals between its bookmarks a watch may be silent, within bookmark_silence.
    """

    watch_min: float = 300.0
    watch_max: float = 600.0
    grace: float = 30.0
    initial_silence: float = 30.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_seconds=0.25))
    healthy: float = 3.0
    brief: float = 0.25
    spacing: float = 0.5
    absent: Backoff = field(default_factory=lambda: Backoff(first_seconds=5.0, longest_seconds=300.0))
    silence: float = 5.0
    longest_silence: float = 30.0
    probing: float = 0.02
    late: float = 3.5
    answer: float = 15.0
    bookmarks_missed: float = 2.5
    bookmark_silence: tuple[float, float] = (30.0, 180.0)


AMONG_SEVERAL = Timing(silence=8.0, longest_silence=8.0, late=60.0, answer=4.0)
"""If there is another server to use, one that hangs delays changes by at most 15 s."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`random` returns numbers in [0, 1); `sleep` waits for seconds."""

    random: Callable[[], float]
    sleep: Callable[[float], Coroutine[None, None, None]]
    timing: Timing = Timing()

    def watch_timeout_seconds(self) -> int:
        """Returns how long the next watch is requested to last; the API takes whole seconds."""
        spread = self.timing.watch_max - self.timing.watch_min
        return max(1, round(self.timing.watch_min + spread * self.random()))


class RetryDelays:
    """The waits of a series of failures, with full jitter: each is random between 0 and the value of `Backoff`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._failures = 0

    def next_seconds(self) -> float:
        """Returns how long to wait after one more failure."""
        self._failures += 1
        return self._pace.timing.backoff.seconds(self._failures) * self._pace.random()

    def reset(self) -> None:
        """Ends the series: the next wait is the first of a new one."""
        self._failures = 0


class AbsenceDelays:
    """The waits between checks for what a server lacks or refuses. They are short at first: a proxy in front of the server, or a
    server that starts or is replaced, may have given that answer only for a moment."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.count = 0

    def next_seconds(self) -> float:
        """Returns how long to wait after one more check that found nothing."""
        self.count += 1
        return self._pace.timing.absent.seconds(self.count) * (0.5 + self._pace.random())

    def reset(self) -> None:
        """Starts again with short waits, because it was found."""
        self.count = 0
