"""What is wrong, because of what, and what to do; and the first line that says it."""

from collections.abc import Iterable
from enum import IntEnum

from msgspec import Struct

from nodeagent.diagnosis.verdict_line import verdict_line


class Severity(IntEnum):
    """How bad a finding is. NOTE: worth knowing. IMPAIRED: some connections fail. BROKEN: no connection works."""

    NOTE = 0
    IMPAIRED = 1
    BROKEN = 2


class Finding(Struct, frozen=True):
    """One fault or note. what, because, do: parts of a sentence for people."""

    severity: Severity
    what: str
    because: str
    do: str

    def __str__(self) -> str:
        return verdict_line(self.severity.name.lower(), self.what, self.because, self.do)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the findings sorted by severity, without repetitions; equal ones stay in the order in which they were found."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: -finding.severity))
