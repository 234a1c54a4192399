"""The result of a check, and the verdict over all of them (pure)."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from nodeagent.diagnosis.verdict_line import verdict_line


class Result(StrEnum):
    """The result of a check. NOTE: worth knowing, but no fault."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


class Finding(Struct, frozen=True):
    """What one check found. detail: what was found, and what follows from it. cure: what to do. Each is one line.

    reason: CamelCase and stable, set if this is a condition of the node that stops connections to Services. family: the
    family of those connections; empty: both. total: it stops everything that this node forwards. unseen: the check could
    not look at something that may stop connections.
    """

    check: str
    result: Result
    detail: str
    cure: str = ""
    reason: str = ""
    family: str = ""
    total: bool = False
    unseen: bool = False


def verdict_of(findings: Sequence[Finding]) -> str:
    """Returns one line for all checks: the first failure with its cure, or `healthy`."""
    wrong = [finding for finding in findings if finding.result is Result.FAILED]
    if not wrong:
        unseen = next((finding.detail for finding in findings if finding.unseen), "")
        return f"healthy; as far as is known: {unseen}" if unseen else "healthy"
    first = wrong[0]
    return verdict_line("not healthy", first.check, first.detail, first.cure, more=len(wrong) - 1)
