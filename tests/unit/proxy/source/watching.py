"""What a watched server says, and what the protocol makes of it, in words."""

import json
from collections.abc import Iterable

from nodeagent.model.objects import Service
from nodeagent.proxy.source.decode import ObjectDecoder
from nodeagent.proxy.source.watch import (
    ListWatch,
)
from nodeagent.proxy.source.watch_events import Completed, Event, Failed, Gone, Listed, Put, Spoiled, Unlisted

SELECTORS = (("labelSelector", "!a"), ("fieldSelector", "b!=c"))


def machine(*, streaming: bool = False) -> ListWatch[Service]:
    return ListWatch(ObjectDecoder(Service), SELECTORS, streaming=streaming)


def asked(protocol: ListWatch[Service]) -> dict[str, str]:
    return dict(protocol.next_request(300).parameters)


def line(kind: str, name: str = "web", version: str = "7", **more: object) -> bytes:
    event = {
        "type": kind,
        "object": {"metadata": {"name": name, "namespace": "demo", "resourceVersion": version}, **more},
    }
    return json.dumps(event).encode() + b"\n"


def bookmark(version: str, *, ends_initial: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_initial else {}
    meta = {"resourceVersion": version, "annotations": annotations}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}).encode() + b"\n"


def error_line(code: int, reason: str = "", message: str = "", **details: object) -> bytes:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def page(version: str, *names: str, continue_token: str = "") -> bytes:
    items = [{"metadata": {"name": name, "namespace": "demo"}} for name in names]
    meta = {"resourceVersion": version, "continue": continue_token}
    return json.dumps({"metadata": meta, "items": items}).encode()


def spoken(events: Iterable[Event[Service]]) -> list[str]:
    """Events as short text."""
    return [_say(event) for event in events]


def _say(event: Event[Service]) -> str:
    match event:
        case Listed():
            names = [obj.metadata.name for obj in event.objects]
            return " ".join(["listed", *names, *(f"not {bad.key}" for bad in event.undecodable)])
        case Unlisted() | Gone():
            return f"{type(event).__name__.lower()} {event.key}"
        case Put():
            return f"put {event.object.metadata.name}"
        case Spoiled():
            return f"spoiled {event.undecodable.key}"
        case Completed():
            return f"completed {event.resource_version}"
        case Failed():
            return f"failed {type(event.error).__name__}"


def watching(version: str = "5") -> ListWatch[Service]:
    protocol = machine()
    protocol.next_request(300)
    assert spoken(protocol.receive_page(page(version, "web"))) == ["listed web", f"completed {version}"]
    return protocol
