"""Event: one object in two API groups, core/v1 and events.k8s.io/v1, stored in the core form."""

from collections.abc import Mapping
from typing import Final

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import field_errors, qualified_name
from nodeagent.kinds.description.object_rules import unchanged
from nodeagent.kinds.description.printing import Column, Printer, age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, invalid, required

EVENTS: Final = "events"
"""The collection in which Events of both groups are stored."""
KEPT_SECONDS: Final = 3600.0
"""How long an Event is kept, as in kube-apiserver (--event-ttl)."""
_LONGEST_WORD: Final = 128
_LONGEST_NOTE: Final = 1024
"""In bytes, although the errors say characters."""
_SHORTEST_SERIES: Final = 2
_CORE_ONLY: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
_FIXED: Final = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime"),
    *("action", "related", "reportingComponent", "reportingInstance"),
)

SHAPES = read_shapes(r"""
EventSource = io.k8s.api.core.v1 : EventSource contains information for an event.
  component  string #1 : Component from which the event is generated.
  host       string #2 : Node name on which the event is generated.

EventSeries = io.k8s.api.core.v1 : EventSeries contain information on series of events, i.e. thing that was/is happening continuously for some time.
  count             int32 #1 : Number of occurrences in this series up to the last heartbeat time.
  lastObservedTime  microtime #2 : Time of the last occurrence observed.

CoreEvent = io.k8s.api.core.v1 as=Event : Event is a report of an event somewhere in the cluster.
  metadata            ObjectMeta #1 : Standard object's metadata.
  involvedObject      ObjectReference required #2 : The object that this event is about.
  reason              string #3 : This should be a short, machine understandable string that gives the reason for the transition into the object's current status.
  message             string #4 : A human-readable description of the status of this operation.
  source              EventSource #5 : The component reporting this event. Should be a short machine understandable string.
  firstTimestamp      time! #6 : The time at which the event was first recorded.
  lastTimestamp       time! #7 : The time at which the most recent occurrence of this event was recorded.
  count               int32 #8 : The number of times this event has occurred.
  type                string #9 : Type of this event (Normal, Warning), new types could be added in the future.
  eventTime           microtime! #10 : Time when this Event was first observed.
  series              *EventSeries #11 : Data about the Event series this event represents or nil if it's a singleton Event.
  action              string #12 : What action was taken/failed regarding to the Regarding object.
  related             *ObjectReference #13 : Optional secondary object for more complex actions.
  reportingComponent  string! #14 : Name of the controller that emitted this Event, e.g. `kubernetes.io/kubelet`.
  reportingInstance   string! #15 : ID of the controller instance, e.g. `kubelet-xyzf`.

Event = io.k8s.api.events.v1 : Event is a report of an event somewhere in the cluster. It generally denotes some state change in the system.
  metadata                  ObjectMeta #1 : Standard object's metadata.
  eventTime                 microtime! required #2 : eventTime is the time when this Event was first observed.
  series                    *EventSeries #3 : series is data about the Event series this event represents or nil if it's a singleton Event.
  reportingController       string #4 : reportingController is the name of the controller that emitted this Event.
  reportingInstance         string #5 : reportingInstance is the ID of the controller instance.
  action                    string #6 : action is what action was taken/failed regarding to the regarding object.
  reason                    string #7 : reason is why the action was taken. It is human-readable.
  regarding                 ObjectReference #8 : regarding contains the object this Event is about.
  related                   *ObjectReference #9 : related is the optional secondary object for more complex actions.
  note                      string #10 : note is a human-readable description of the status of this operation.
  type                      string #11 : type is the type of this event (Normal, Warning).
  deprecatedSource          EventSource #12 : deprecatedSource is the deprecated field assuring backward compatibility with core.v1 Event type.
  deprecatedFirstTimestamp  time! #13 : deprecatedFirstTimestamp is the deprecated field assuring backward compatibility with core.v1 Event type.
  deprecatedLastTimestamp   time! #14 : deprecatedLastTimestamp is the deprecated field assuring backward compatibility with core.v1 Event type.
  deprecatedCount           int32 #15 : deprecatedCount is the deprecated field assuring backward compatibility with core.v1 Event type.
""")


def validate_event(event: Document) -> list[FieldError]:
    """Returns the errors of a core Event; it must be in the namespace of its object (`default` for objects without one)."""
    return _report_errors(event, "reportingComponent") if event.get("eventTime") else _namespace_errors(event)


def validate_modern_event(event: Document) -> list[FieldError]:
    """Returns the errors of an events.k8s.io Event: it must have a time and a known type, and no fields of core Events only."""
    errors = _core_errors(event) + _series_errors(event)
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {event.get('type', '')}"))
    errors += [invalid(field, "", "needs to be unset") for field in _CORE_ONLY if event.get(field)]
    return errors


def validate_modern_update(event: Document, old: Document) -> list[FieldError]:
    """Returns the errors of a change: only the series may change (pkg/apis/core/validation/events.go)."""
    errors = _core_errors(event)
    if event.get("series") != old.get("series"):
        errors += _series_errors(event)
    return errors + [error for field in _FIXED for error in unchanged(field, old.get(field), event.get(field))]


def _core_errors(event: Document) -> list[FieldError]:
    return _report_errors(event, "reportingController") if event.get("eventTime") else _namespace_errors(event)


def _namespace_errors(event: Document) -> list[FieldError]:
    about = event["involvedObject"].get("namespace", "")
    if (about or "default") == event["metadata"].get("namespace", ""):
        return []
    return [invalid("involvedObject.namespace", about, "does not match event.namespace")]


def _series_errors(event: Document) -> list[FieldError]:
    series = event.get("series")
    errors: list[FieldError] = []
    if series is not None and series.get("count", 0) < _SHORTEST_SERIES:
        errors.append(invalid("series.count", "", f"should be at least {_SHORTEST_SERIES}"))
    if series is not None and not series.get("lastObservedTime"):
        errors.append(required("series.lastObservedTime"))
    return errors


def _report_errors(event: Document, controller: str) -> list[FieldError]:
    """Returns the errors of an Event with an eventTime; `controller` is the name of the reporter's field in errors."""
    errors: list[FieldError] = []
    about = event["involvedObject"].get("namespace", "")
    if not about and event["metadata"].get("namespace", "") not in ("default", "kube-system"):
        errors.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
    component = event.get("reportingComponent", "")
    if not component:
        errors.append(required(controller))
    errors += field_errors(controller, component, qualified_name(component))
    for field in ("reportingInstance", "action", "reason"):
        if not event.get(field):
            errors.append(required(field))
        elif len(event[field].encode()) > _LONGEST_WORD:
            errors.append(invalid(field, "", f"can have at most {_LONGEST_WORD} characters"))
    if len(event.get("message", "").encode()) > _LONGEST_NOTE:
        errors.append(invalid("message", "", f"can have at most {_LONGEST_NOTE} characters"))
    return errors


def _cells(document: Document, now: float) -> list[Json]:
    about = document["involvedObject"]
    kind = about.get("kind", "").lower()
    count = document.get("count") or 1
    source = document.get("source") or {}
    last = document.get("lastTimestamp") or document.get("eventTime")
    first = document.get("firstTimestamp") or document.get("eventTime")
    host = f", {source['host']}" if source.get("host") else ""
    return [
        age(last, now),
        document.get("type", ""),
        document.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{source.get('component', '')}{host}" if source else document.get("reportingComponent", ""),
        document.get("message", "").strip(),
        age(first, now),
        count,
        document["metadata"].get("name", ""),
    ]


PRINTER = Printer(
    (
        Column("Last Seen", described_by="lastTimestamp"),
        Column("Type", described_by="type"),
        Column("Reason", described_by="reason"),
        Column("Object", described_by="involvedObject"),
        Column("Subobject", described_by="involvedObject.fieldPath", priority=1),
        Column("Source", described_by="source", priority=1),
        Column("Message", described_by="message"),
        Column("First Seen", described_by="firstTimestamp", priority=1),
        Column("Count", described_by="count", priority=1),
        Column("Name", described_by="metadata.name", priority=1),
    ),
    _cells,
    named=False,
)


_RENAMED: Final[Mapping[str, str]] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK: Final[Mapping[str, str]] = {core: modern for modern, core in _RENAMED.items()}


def to_core(event: Document) -> Document:
    """Returns the stored form of an events.k8s.io Event."""
    return {_RENAMED.get(name, name): value for name, value in event.items()}


def from_core(event: Document) -> Document:
    """Returns the events.k8s.io form of a stored Event."""
    return {_BACK.get(name, name): value for name, value in event.items()}


_ABOUT: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
"""Fields of the involved object that field selectors may use."""


ROWS = (
    Resource(
        plural="events",
        singular="event",
        kind="Event",
        struct=SHAPES["CoreEvent"],
        short_names=("ev",),
        kept_seconds=KEPT_SECONDS,
        has_dependents=False,
        printer=PRINTER,
        validate=validate_event,
        fields=(*(f"involvedObject.{name}" for name in _ABOUT), "reason", "reportingComponent", "source", "type"),
        field_sources={"source": ("source.component", "reportingComponent")},
        storage_hash="r2yiGXH7wu8=",
    ),
    Resource(
        group="events.k8s.io",
        plural="events",
        singular="event",
        kind="Event",
        struct=SHAPES["Event"],
        short_names=("ev",),
        kept_seconds=KEPT_SECONDS,
        has_dependents=False,
        printer=PRINTER,
        validate=validate_modern_event,
        validate_update=validate_modern_update,
        to_stored=to_core,
        from_stored=from_core,
        stored_struct=SHAPES["CoreEvent"],
        fields=(*(f"regarding.{name}" for name in _ABOUT), "reason", "reportingController", "type"),
        field_sources={
            "reportingController": ("reportingComponent",),
            **{f"regarding.{name}": (f"involvedObject.{name}",) for name in _ABOUT},
        },
    ),
)
