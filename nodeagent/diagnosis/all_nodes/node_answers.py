"""The answer of one node, decoded from the documents of `nodeagent explain`, `check` and `problems` (`-o json`).

The agent in a pod may have another version than this program: unknown fields are ignored, and a document that lacks a
required field is rejected.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from nodeagent.diagnosis.explain.verdict import Severity
from nodeagent.wire.unreadable import UNREADABLE

Document = TypeVar("Document")


class Condition(IntEnum):
    """The condition of a node, the worst last. UNKNOWN: it could not be asked, which never counts as healthy."""

    HEALTHY = 0
    UNKNOWN = 1
    UNHEALTHY = 2
    IMPAIRED = 3
    BROKEN = 4

    @property
    def word(self) -> str:
        """The condition as the first word of a verdict."""
        return "not healthy" if self is Condition.UNHEALTHY else self.name.lower()


class NodeComplaint(Struct, frozen=True):
    """One fault. subject: a Service, a check or an object. what (may be empty), because, do: parts of a sentence."""

    condition: Condition
    subject: str
    what: str
    because: str
    do: str = ""

    @property
    def title(self) -> str:
        """The fault without its reason."""
        return f"{self.subject}: {self.what}" if self.what else self.subject


class NodeAnswer(Struct, frozen=True):
    """A node's answer. verdict: its own first line, or why it could not be asked. complaints: worst first.

    more: how many further complaints the node has.
    """

    node: str
    condition: Condition
    verdict: str
    complaints: tuple[NodeComplaint, ...] = ()
    more: int = 0


class Unreadable(Exception):
    """The document of a node could not be decoded. The message is one line."""


class _Finding(Struct):
    what: str
    because: str
    do: str = ""


class _Service(Struct):
    service: str
    severity: str
    findings: tuple[_Finding, ...] = ()


class _Explained(Struct):
    """The document of one Service, or of all Services: then `services` has those that are not healthy."""

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
    """Decodes the output of `nodeagent explain -o json`. Raises Unreadable."""
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
    """Decodes the output of `nodeagent check -o json`. Raises Unreadable."""
    said = _decoded(output, _Checks)
    failed = [one for one in said.checks if one.result == "failed"]
    complaints = tuple(NodeComplaint(Condition.UNHEALTHY, one.check, "", one.detail, one.cure) for one in failed)
    return NodeAnswer(node, Condition.UNHEALTHY if failed else Condition.HEALTHY, said.verdict, complaints)


def problems(node: str, output: str) -> NodeAnswer:
    """Decodes the output of `nodeagent problems -o json`. Raises Unreadable."""
    said = _decoded(output, tuple[_Problem, ...])
    complaints = tuple(NodeComplaint(Condition.UNHEALTHY, one.subject, one.reason, one.detail) for one in said)
    if not complaints:
        return NodeAnswer(node, Condition.HEALTHY, "healthy: no problems")
    return NodeAnswer(node, Condition.UNHEALTHY, f"not healthy: {complaints[0].title}", complaints)


READERS: Mapping[str, Callable[[str, str], NodeAnswer]] = {"explain": explained, "check": checked, "problems": problems}
"""Command → the function that decodes its document."""


def _condition(severity: str) -> Condition:
    return {Severity.BROKEN.name: Condition.BROKEN, Severity.IMPAIRED.name: Condition.IMPAIRED}.get(
        severity.upper(), Condition.UNHEALTHY
    )


def _decoded(output: str, kind: type[Document]) -> Document:
    try:
        return msgspec.json.decode(output, type=kind)
    except UNREADABLE as error:
        raise Unreadable(f"another version wrote its answer: {error}") from error
