"""What a fault cost: from what the load had seen before, and in the end. Pure."""

from collections import Counter

from nodeagent.lab.live.requests import FaultReport, LoadSample


def failures_of(sample: LoadSample) -> Counter[str]:
    """By kind."""
    total: Counter[str] = Counter()
    for target in sample.targets:
        total.update(target.failures)
    return total


def failures_by_target(sample: LoadSample) -> Counter[str]:
    """By way."""
    return Counter({f"{target.client} → {target.target}": target.failed for target in sample.targets})


def seconds_to_recovery(sample: LoadSample, since: float) -> float:
    """From this moment until the last connection began that failed; 0 when none of those begun later failed."""
    return max(0.0, sample.last_failure - since)


def is_quiet(sample: LoadSample, since: float, quiet: float) -> bool:
    """Whether all connections begun in some `quiet` seconds, after `since` and lately, are known to be well."""
    return sample.horizon - max(since, sample.last_failure) >= quiet


def judge(
    kind: str,
    what: str,
    before: LoadSample,
    after: LoadSample,
    *,
    began: float,
    righted: float | None,
    recovered: bool,
    held: int,
    kept: int,
    note: str = "",
) -> FaultReport:
    """The report. began: the moment of the fault; righted: when it was put right, None when nothing had to be."""
    failures = failures_of(after) - failures_of(before)
    failed = failures.total()
    return FaultReport(
        kind,
        what,
        after.at - began,
        after.answered + after.failed - before.answered - before.failed,
        failed,
        dict(failures),
        seconds_to_recovery(after, began) if recovered else None,
        seconds_to_recovery(after, righted) if recovered and righted is not None else None,
        kept,
        held,
        dict(failures_by_target(after) - failures_by_target(before)),
        note,
    )
