"""Kubernetes events (events.k8s.io/v1) as values, and which problems become one. Pure.

Reasons are kube-proxy's where it has one, for alerts look for them. The reporting controller is our own name: two
proxies may run during a migration, and an event must say whose it is (docs/decisions/0030-health-listeners.md).
"""

from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum

from msgspec import Struct

from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem

CONTROLLER = "nodeagent"
PATH = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
NOTE_BYTES = 1024  # validation of events.k8s.io/v1: noteLengthLimit
_NAME_CHARACTERS = 253 - 17

STARTING = "Starting"
_ACTION_BY_REASON = {
    "AddressConflict": "Program",
    "RejectedByKernel": "Program",
    "FailedToStartServiceHealthcheck": "Listen",
    "FailedToStartProxierHealthcheck": "Listen",
}
_ON_NODE = frozenset({"FailedToStartProxierHealthcheck"})


class EventType(Enum):
    """How bad it is."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Regarding(Struct, frozen=True):
    """The object an event is about; `namespace` is empty for a Node."""

    kind: str
    namespace: str
    name: str
    uid: str


class Event(Struct, frozen=True):
    """What happened. Equal events are one event that happened several times."""

    type: EventType
    reason: str
    action: str
    note: str
    regarding: Regarding

    @property
    def namespace(self) -> str:
        """Where the Event object lives; the API wants ``default`` for objects without a namespace."""
        return self.regarding.namespace or "default"

    @property
    def path(self) -> str:
        """Where it is created."""
        return PATH.format(namespace=self.namespace)


class Series(Struct, frozen=True):
    """How often an event happened, the first time included, and when last."""

    count: int
    last: datetime


def node_regarding(name: str) -> Regarding:
    """The Node; with its name as uid, which is what kubelet writes and `kubectl describe node` asks for."""
    return Regarding("Node", "", name, name)


def starting(node: Regarding) -> Event:
    """The agent begins its work."""
    return Event(EventType.NORMAL, STARTING, "Start", "", node)


def problem_event(problem: Problem, node: Regarding, uid_of: Callable[[ObjectKey], str]) -> Event | None:
    """The event that tells of a problem on the Service or the Node; None for problems that are not worth one."""
    action = _ACTION_BY_REASON.get(problem.reason)
    if action is None:
        return None
    if problem.reason in _ON_NODE:
        return Event(EventType.WARNING, problem.reason, action, problem.detail, node)
    kind, _, key = problem.subject.partition(" ")
    namespace, slash, name = key.partition("/")
    if kind != "Service" or not slash:
        return None
    service = Regarding(kind, namespace, name, uid_of(ObjectKey(namespace, name)))
    note = f"node {node.name}: {problem.detail}"
    return Event(EventType.WARNING, problem.reason, action, note, service)


def event_name(event: Event, suffix: str) -> str:
    """The name of the Event object: the object's and something unique of at most 16 characters."""
    return f"{event.regarding.name[:_NAME_CHARACTERS]}.{suffix}"


def creation(event: Event, *, name: str, instance: str, first: datetime, series: Series) -> dict[str, object]:
    """The object to POST. instance: which of all agents reports it."""
    regarding = {"apiVersion": "v1", "kind": event.regarding.kind, "name": event.regarding.name}
    if event.regarding.namespace:
        regarding["namespace"] = event.regarding.namespace
    if event.regarding.uid:
        regarding["uid"] = event.regarding.uid
    document: dict[str, object] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event.namespace},
        "eventTime": micro_time(first),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "action": event.action,
        "reason": event.reason,
        "regarding": regarding,
        "note": event.note.encode()[:NOTE_BYTES].decode(errors="ignore"),
        "type": event.type.value,
    }
    return document | repetition(series) if series.count > 1 else document


def repetition(series: Series) -> dict[str, object]:
    """The merge patch for an event that happened again."""
    return {"series": {"count": series.count, "lastObservedTime": micro_time(series.last)}}


def micro_time(moment: datetime) -> str:
    """metav1.MicroTime: UTC with exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
