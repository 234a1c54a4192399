"""What a fault cost, computed from samples of the load before and after. Pure."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from nodeagent.lab.net.latencies import merged
from nodeagent.lab.supervisor_messages import FaultReport, FaultVerdict, LoadSample, WayCost

QUIET = 0.5
"""Seconds without a failure after which the lab counts as well."""


class Promise(Struct, frozen=True):
    """What a fault must not cost: new connections that fail, open ones that break.

    changes: seconds within which a Service change is served by every node in spite of the fault; 0 if changes are not
    watched. stands_still: no change is expected before the fault is over; the seconds count from then.
    """

    new: bool = False
    open: bool = False
    changes: float = 0.0
    stands_still: bool = False


class FaultTiming(Struct, frozen=True):
    """The time of a fault: when it began, when it was over (repaired, or done), and what showed that it was in effect.
    lost: failures other than connections, which must not happen."""

    began: float
    ended: float
    seen: str = ""
    lost: int = 0


class OpenConnections(Struct, frozen=True):
    """Connections opened before the fault: how many, and how many still answered in the end."""

    held: int
    kept: int


class Change(Struct, frozen=True):
    """A Service change: when it began, and when every node served it; None: not yet."""

    began: float
    in_force: float | None = None


class ChangeSummary(Struct, frozen=True):
    """Service changes since a fault: how many took effect, seconds of the slowest, whether new ones take effect."""

    count: int
    slowest: float
    go_on: bool


class NotDone(Struct, frozen=True):
    """A fault that ended without a report, and why."""

    kind: str
    reason: str


def is_well(sample: LoadSample, since: float) -> bool:
    """Returns whether the lab is well after `since` and after the last failure.

    That is: on each path a connection that began later was answered, and every connection begun in the first QUIET
    seconds after that moment was answered.
    """
    moment = max(since, sample.last_failure)
    return sample.horizon - moment >= QUIET and all(way.last_answer > moment for way in sample.ways)


def failing_paths(sample: LoadSample, since: float) -> list[str]:
    """Returns the paths on which the latest connections failed, or none was answered since then."""
    return [
        f"{one.way.client} → {one.way.text}" for one in sample.ways if one.last_answer <= max(since, one.last_failure)
    ]


def slowest_answer(before: LoadSample, after: LoadSample) -> float:
    """Returns the seconds of the slowest answer between two samples, to two digits."""
    took = merged(way.latencies for way in after.ways) - merged(way.latencies for way in before.ways)
    return max(took, default=0) / 1e6


def way_costs(before: LoadSample, after: LoadSample) -> tuple[WayCost, ...]:
    """Returns what was counted between two samples of the same paths."""
    costs = []
    for earlier, later in zip(before.ways, after.ways, strict=True):
        attempts = later.answered + later.failed - earlier.answered - earlier.failed
        costs.append(WayCost(later.way, attempts, dict(Counter(later.failures) - Counter(earlier.failures))))
    return tuple(costs)


def takes_new_changes(changes: Iterable[Change], since: float) -> bool:
    """Returns whether a change that began later took effect."""
    return any(change.in_force is not None and change.began > since for change in changes)


def changes_since(changes: Iterable[Change], course: FaultTiming, promise: Promise, now: float) -> ChangeSummary:
    """Summarizes the changes that were in progress when the fault began, or began later."""
    clear = course.ended if promise.stands_still else course.began
    concerned = [one for one in changes if one.in_force is None or one.in_force > course.began]
    took = [max(0.0, (now if one.in_force is None else one.in_force) - max(one.began, clear)) for one in concerned]
    count = sum(one.in_force is not None for one in concerned)
    return ChangeSummary(count, max(took, default=0.0), takes_new_changes(concerned, course.ended))


def judge(
    kind: str,
    what: str,
    promise: Promise,
    before: LoadSample,
    after: LoadSample,
    course: FaultTiming,
    opened: OpenConnections,
    changed: ChangeSummary | None = None,
) -> FaultReport:
    """Returns the report. `after` was taken when the lab was well again, or when the wait for that ended. changed: None
    if changes were not watched."""
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
