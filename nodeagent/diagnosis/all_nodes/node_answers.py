"""What one node says of itself, read from the documents of `nodeagent explain`, `check` and `problems` (`-o json`).

Pods of agents may be of another version than this program: fields that are not known are passed over, and a document
without the fields that matter is no answer.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from nodeagent.diagnosis.explain.verdict import Severity

Document = TypeVar("Document")


class Condition(IntEnum):
    """How a node is, the worst last. UNKNOWN: it could not be asked, which is never healthy."""

    HEALTHY = 0
    UNKNOWN = 1
    UNHEALTHY = 2
    IMPAIRED = 3
    BROKEN = 4

    @property
    def word(self) -> str:
        """As a verdict begins."""
        return "not healthy" if self is Condition.UNHEALTHY else self.name.lower()


class NodeComplaint(Struct, frozen=True):
    """One thing that is wrong. subject: a Service, a check, an object. what, because, do: parts of a sentence, what may be empty."""

    condition: Condition
    subject: str
    what: str
    because: str
    do: str = ""

    @property
    def title(self) -> str:
        """What is wrong, without the reason."""
        return f"{self.subject}: {self.what}" if self.what else self.subject


class NodeAnswer(Struct, frozen=True):
    """verdict: the node's own first line; of one that could not be asked, why. complaints: worst first.

    more: complaints that the node has beside these.
    """

    node: str
    condition: Condition
    verdict: str
    complaints: tuple[NodeComplaint, ...] = ()
    more: int = 0


class Unreadable(Exception):
    """What a node said is no answer; one line."""


class _Finding(Struct):
    what: str
    because: str
    do: str = ""


class _Service(Struct):
    service: str
    severity: str
    findings: tuple[_Finding, ...] = ()


class _Explained(Struct):
    """Of one Service, or of all: then those that are not healthy."""

    verdict: str
    healthy: bool
    service: str = ""
    severity: str = ""
    findings: tuple[_Finding, ...] = ()
    services: tuple[_Service, ...] = ()
    bad: int = 0


class _Checked(Struct):
    check: str
    result: str
    detail: str
    cure: str = ""


class _Checks(Struct):
    verdict: str
    checks: tuple[_Checked, ...]


class _Problem(Struct):
    subject: str
    reason: str
    detail: str


def explained(node: str, output: str) -> NodeAnswer:
    """What `nodeagent explain -o json` printed there. Raises Unreadable."""
    said = _decoded(output, _Explained)
    if said.healthy:
        return NodeAnswer(node, Condition.HEALTHY, said.verdict)
    services = said.services or (_Service(said.service, said.severity, said.findings),)
    complaints = [
        NodeComplaint(_condition(one.severity), one.service, first.what, first.because, first.do)
        for one in services
        for first in one.findings[:1]
    ]
    complaints.sort(key=lambda one: (-one.condition, one.subject))
    worst = complaints[0].condition if complaints else Condition.UNHEALTHY
    return NodeAnswer(node, worst, said.verdict, tuple(complaints), max(0, said.bad - len(complaints)))


def checked(node: str, output: str) -> NodeAnswer:
    """What `nodeagent check -o json` printed there. Raises Unreadable."""
    said = _decoded(output, _Checks)
    failed = [one for one in said.checks if one.result == "failed"]
    complaints = tuple(NodeComplaint(Condition.UNHEALTHY, one.check, "", one.detail, one.cure) for one in failed)
    return NodeAnswer(node, Condition.UNHEALTHY if failed else Condition.HEALTHY, said.verdict, complaints)


def problems(node: str, output: str) -> NodeAnswer:
    """What `nodeagent problems -o json` printed there. Raises Unreadable."""
    said = _decoded(output, tuple[_Problem, ...])
    complaints = tuple(NodeComplaint(Condition.UNHEALTHY, one.subject, one.reason, one.detail) for one in said)
    if not complaints:
        return NodeAnswer(node, Condition.HEALTHY, "healthy: no problems")
    return NodeAnswer(node, Condition.UNHEALTHY, f"not healthy: {complaints[0].title}", complaints)


READERS: Mapping[str, Callable[[str, str], NodeAnswer]] = {"explain": explained, "check": checked, "problems": problems}
"""Command → what reads its document."""


def _condition(severity: str) -> Condition:
    return {Severity.BROKEN.name: Condition.BROKEN, Severity.IMPAIRED.name: Condition.IMPAIRED}.get(
        severity.upper(), Condition.UNHEALTHY
    )


def _decoded(output: str, kind: type[Document]) -> Document:
    try:
        return msgspec.json.decode(output, type=kind)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"its answer is of another version: {error}") from error
