"""What a fault cost: from what the load had seen before, and in the end. Pure."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from nodeagent.lab.net.latencies import merged
from nodeagent.lab.supervisor_messages import FaultReport, FaultVerdict, LoadSample, WayCost

QUIET = 0.5
"""Seconds in which nothing fails before all is said to be well."""


class Promise(Struct, frozen=True):
    """What a fault must not cost: new connections that fail, open ones that break.

    changes: seconds in which a Service change comes into force on every node, in spite of the fault; 0 where nobody looks.
    stands_still: no change is expected before the fault is over, and the seconds count from then.
    """

    new: bool = False
    open: bool = False
    changes: float = 0.0
    stands_still: bool = False


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


class Change(Struct, frozen=True):
    """A Service change: when it began, when every node served it; None: not yet."""

    began: float
    in_force: float | None = None


class Changed(Struct, frozen=True):
    """Service changes since a fault: how many came into force, seconds that the slowest took, whether they go on."""

    count: int
    slowest: float
    go_on: bool


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


def changes_go_on(changes: Iterable[Change], since: float) -> bool:
    """Whether one is in force that was begun later."""
    return any(change.in_force is not None and change.began > since for change in changes)


def changes_since(changes: Iterable[Change], course: Course, promise: Promise, now: float) -> Changed:
    """What became of those that were under way when the fault began, or begun later."""
    clear = course.ended if promise.stands_still else course.began
    concerned = [one for one in changes if one.in_force is None or one.in_force > course.began]
    took = [max(0.0, (now if one.in_force is None else one.in_force) - max(one.began, clear)) for one in concerned]
    count = sum(one.in_force is not None for one in concerned)
    return Changed(count, max(took, default=0.0), changes_go_on(concerned, course.ended))


def judge(
    kind: str,
    what: str,
    promise: Promise,
    before: LoadSample,
    after: LoadSample,
    course: Course,
    opened: Open,
    changed: Changed | None = None,
) -> FaultReport:
    """The report. `after` was taken when all was well again, or when nobody looked any longer. changed: None where
    nobody looked at changes.
    """
    ways = way_costs(before, after)
    failed = sum(way.failed for way in ways)
    last = after.last_failure if failed else 0.0
    recovered = is_well(after, course.ended)
    if not recovered or (changed is not None and not changed.go_on):
        verdict = FaultVerdict.NOT_RECOVERED
    elif course.lost or (promise.new and failed) or (promise.open and opened.kept < opened.held):
        verdict = FaultVerdict.LOST
    elif changed is not None and changed.slowest > promise.changes:
        verdict = FaultVerdict.LATE
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
        changed.count if changed is not None else 0,
        changed.slowest if changed is not None else None,
    )
