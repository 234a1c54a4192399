"""Kubernetes events (events.k8s.io/v1) as values, for all problems of objects. Pure.

Reasons are kube-proxy's where it has one, because alerts look for them. The reporting controller is our own name: two
proxies may run during a migration, and an event must name its own (docs/decisions/0030-health-listeners.md).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from hashlib import blake2b

from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.text import printable

CONTROLLER = "nodeagent"
PATH = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
NOTE_BYTES = 1024  # validation of events.k8s.io/v1: noteLengthLimit
_NAME_CHARACTERS = 253 - 17

STARTING = "Starting"
_API_VERSIONS = {
    "Service": "v1",
    "Endpoints": "v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "Node": "v1",
    "ServiceCIDR": "networking.k8s.io/v1",
}
_CLUSTER_SCOPED = frozenset({"Node", "ServiceCIDR"})
_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_ON_NODE = frozenset({"ChangedRepeatedly", "FailedToStartProxierHealthcheck"})
_OF_ONE_NODE = frozenset(
    {
        "AffinityIdTaken",
        "AffinityTimeoutRounded",
        "FailedToStartServiceHealthcheck",
        "NodeAddressInServiceCIDR",
        "ProtectedAddress",
        "RejectedByKernel",
    }
)
"""Problems that another node may not have: the event names the node, and every node with the problem writes its own. All others
follow from the objects alone, so every node would write the same."""
_UNDECODABLE = "Undecodable"
_ACTIONS = {
    "FailedToStartServiceHealthcheck": "Listen",
    "FailedToStartProxierHealthcheck": "Listen",
    _UNDECODABLE: "Read",
}
_ACTION = "Program"


class EventType(Enum):
    """events.k8s.io/v1 `type`."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object an event is about; `namespace` is empty for a Node."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. Equal events are one event that happened several times.

    shared: every node may write the same; the first node creates the Event object, under a name that is the same for all.
    """

    type: EventType
    reason: str
    action: str
    note: str
    regarding: Regarding
    shared: bool = False

    @property
    def namespace(self) -> str:
        """The namespace of the Event object; the API requires ``default`` for objects without a namespace."""
        return self.regarding.namespace or "default"

    @property
    def path(self) -> str:
        """The path of the collection it is created in."""
        return PATH.format(namespace=self.namespace)


@dataclass(frozen=True, slots=True)
class Series:
    """How many times an event happened, the first time included, and the last time."""

    count: int
    last: datetime


def node_regarding(name: str) -> Regarding:
    """Returns the Node, with its name as uid: kubelet writes that, and `kubectl describe node` asks for it."""
    return Regarding("Node", "", name, name)


def starting(node: Regarding) -> Event:
    """Returns the event for the start of the agent."""
    return Event(EventType.NORMAL, STARTING, "Start", "", node)


def problem_event(problem: Problem, node: Regarding, uid_of: Callable[[str, ObjectKey], str | None]) -> Event | None:
    """Returns the event on an object for its problem; None if the problem is not about an object.

    uid_of: returns the uid of an object by kind and key, None if there is no such object. An object that could not be decoded gets
    its event without a uid.
    """
    action = _ACTIONS.get(problem.reason, _ACTION)
    detail = printable(problem.detail)
    if problem.reason in _ON_NODE:
        return Event(EventType.WARNING, problem.reason, action, detail, node)
    regarding = _regarding(problem, uid_of)
    if regarding is None:
        return None
    if problem.reason in _OF_ONE_NODE:
        return Event(EventType.WARNING, problem.reason, action, f"node {node.name}: {detail}", regarding)
    return Event(EventType.WARNING, problem.reason, action, detail, regarding, shared=True)


def _regarding(problem: Problem, uid_of: Callable[[str, ObjectKey], str | None]) -> Regarding | None:
    """Returns the object that a problem is about; None for anything else, and for names that no API server can have given."""
    kind, _, path = problem.subject.partition(" ")
    if kind not in _API_VERSIONS:
        return None
    namespace, _, name = ("", "", path) if kind in _CLUSTER_SCOPED else path.partition("/")
    if not _NAME.fullmatch(name) or (kind not in _CLUSTER_SCOPED and not _NAME.fullmatch(namespace)):
        return None
    if kind == "Node":
        return node_regarding(name)
    uid = uid_of(kind, ObjectKey(namespace, name))
    if uid is None and problem.reason != _UNDECODABLE:
        return None
    return Regarding(kind, namespace, name, uid or "")


def event_name(event: Event, suffix: str) -> str:
    """Returns the name of the Event object: the object's and at most 16 characters, which for a shared event are computed from its
    content and for others are `suffix` (something unique)."""
    about = event.regarding
    if event.shared:
        said = repr((about.kind, about.namespace, about.name, about.uid, event.reason, event.note))
        suffix = blake2b(said.encode(), digest_size=8).hexdigest()
    return f"{about.name[:_NAME_CHARACTERS]}.{suffix}"


def creation(event: Event, *, name: str, instance: str, first: datetime, series: Series) -> dict[str, object]:
    """Returns the object to POST. instance: the agent that reports it."""
    about = event.regarding
    regarding = {"apiVersion": _API_VERSIONS[about.kind], "kind": about.kind, "name": about.name}
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
    """Returns the merge patch for an event that happened again."""
    return {"series": {"count": series.count, "lastObservedTime": micro_time(series.last)}}


def micro_time(moment: datetime) -> str:
    """Returns metav1.MicroTime: UTC with exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
