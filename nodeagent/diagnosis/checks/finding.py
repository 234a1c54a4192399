"""What a check says (pure)."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from nodeagent.diagnosis.verdict_line import verdict_line


class Result(StrEnum):
    """How a check ended; a note is something to know that is not wrong."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


class Finding(Struct, frozen=True):
    """One check. detail: what was found, and what follows from it. cure: what to do; each one line.

    reason: CamelCase and stable, where it is a condition of the node that stops connections to Services. family: of
    those connections; empty: every one. total: it stops all that this node forwards. unseen: something that may stop
    connections was not looked at.
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
    """One line over all: what is wrong first of all, and what to do about it."""
    wrong = [finding for finding in findings if finding.result is Result.FAILED]
    if not wrong:
        unseen = next((finding.detail for finding in findings if finding.unseen), "")
        return f"healthy; as far as is known: {unseen}" if unseen else "healthy"
    first = wrong[0]
    return verdict_line("not healthy", first.check, first.detail, first.cure, more=len(wrong) - 1)
