"""What a fault cost: from what the load had seen before, and in the end. Pure."""

from collections import Counter

from msgspec import Struct

from nodeagent.lab.net.latencies import merged
from nodeagent.lab.requests import FaultReport, FaultVerdict, LoadSample, WayCost

QUIET = 0.5
"""Seconds in which nothing fails before all is said to be well."""


class Promise(Struct, frozen=True):
    """What a fault must not cost: new connections that fail, open ones that break."""

    new: bool = False
    open: bool = False


class Course(Struct, frozen=True):
    """How a fault went: when it began, when it was over (put right, or done), and what showed that it was in effect.

    lost: what failed beside connections, and must not.
    """

    began: float
    ended: float
    seen: str = ""
    lost: int = 0


class Open(Struct, frozen=True):
    """Connections opened before, and those of them that answered in the end."""

    held: int
    kept: int


class NotDone(Struct, frozen=True):
    """A fault that came to no report, and why."""

    kind: str
    reason: str


def is_well(sample: LoadSample, since: float) -> bool:
    """Whether all goes well, after `since` and after the last failure.

    That is: each way has answered a connection that was begun later, and whatever was begun in the first QUIET seconds
    after that moment has been answered.
    """
    moment = max(since, sample.last_failure)
    return sample.horizon - moment >= QUIET and all(way.last_answer > moment for way in sample.ways)


def ailing(sample: LoadSample, since: float) -> list[str]:
    """The ways on which the latest connections failed, or none was answered since then."""
    return [
        f"{one.way.client} → {one.way.text}" for one in sample.ways if one.last_answer <= max(since, one.last_failure)
    ]


def slowest_answer(before: LoadSample, after: LoadSample) -> float:
    """Seconds, to two digits."""
    took = merged(way.latencies for way in after.ways) - merged(way.latencies for way in before.ways)
    return max(took, default=0) / 1e6


def way_costs(before: LoadSample, after: LoadSample) -> tuple[WayCost, ...]:
    """What was counted in between; both samples have the same ways."""
    costs = []
    for earlier, later in zip(before.ways, after.ways, strict=True):
        attempts = later.answered + later.failed - earlier.answered - earlier.failed
        costs.append(WayCost(later.way, attempts, dict(Counter(later.failures) - Counter(earlier.failures))))
    return tuple(costs)


def judge(
    kind: str, what: str, promise: Promise, before: LoadSample, after: LoadSample, course: Course, opened: Open
) -> FaultReport:
    """The report. `after` was taken when all was well again, or when nobody looked any longer."""
    ways = way_costs(before, after)
    failed = sum(way.failed for way in ways)
    last = after.last_failure if failed else 0.0
    recovered = is_well(after, course.ended)
    if not recovered:
        verdict = FaultVerdict.NOT_RECOVERED
    elif course.lost or (promise.new and failed) or (promise.open and opened.kept < opened.held):
        verdict = FaultVerdict.LOST
    else:
        verdict = FaultVerdict.RECOVERED if failed else FaultVerdict.NONE_FAILED
    return FaultReport(
        kind,
        what,
        verdict,
        after.at - course.began,
        ways,
        max(0.0, last - course.began),
        max(0.0, last - course.ended) if recovered else None,
        slowest_answer(before, after),
        opened.kept,
        opened.held,
        course.seen,
    )
