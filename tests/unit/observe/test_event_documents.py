"""Event objects as the API server gets them, and which problems become one."""

from datetime import UTC, datetime

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.observe.event_documents import (
    Event,
    EventType,
    Regarding,
    Series,
    creation,
    event_name,
    node_regarding,
    problem_event,
    repetition,
    starting,
)

NODE = node_regarding("n1")
WEB = Regarding("Service", "shop", "web", "uid-web")
NOON = datetime(2026, 3, 1, 12, 0, 0, 120, tzinfo=UTC)
REFUSED = Event(EventType.WARNING, "RejectedByKernel", "Program", "no", WEB)


def uid_of(key: ObjectKey) -> str:
    return f"uid-{key.name}"


def test_an_event_about_a_service() -> None:
    assert creation(REFUSED, name="web.1", instance="nodeagent-n1", first=NOON, series=Series(1, NOON)) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "shop"},
        "eventTime": "2026-03-01T12:00:00.000120Z",
        "reportingController": "nodeagent",
        "reportingInstance": "nodeagent-n1",
        "action": "Program",
        "reason": "RejectedByKernel",
        "regarding": {"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "uid-web"},
        "note": "no",
        "type": "Warning",
    }


def test_an_event_about_the_node_lives_in_the_default_namespace() -> None:
    event = starting(NODE)
    document = creation(event, name="n1.1", instance="i", first=NOON, series=Series(1, NOON))
    assert event.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert document["metadata"] == {"name": "n1.1", "namespace": "default"}
    assert document["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (document["type"], document["reason"]) == ("Normal", "Starting")


def test_repeats_are_a_series() -> None:
    series = {"series": {"count": 3, "lastObservedTime": "2026-03-01T12:00:00.000120Z"}}
    assert repetition(Series(3, NOON)) == series
    assert creation(REFUSED, name="web.1", instance="i", first=NOON, series=Series(3, NOON)).items() >= series.items()


def test_names_and_notes_fit_what_the_api_allows() -> None:
    event = Event(EventType.NORMAL, "Starting", "Start", "ä" * 600, node_regarding("n" * 253))
    document = creation(event, name="x", instance="i" * 300, first=NOON, series=Series(1, NOON))
    assert len(event_name(event, "f" * 16)) == 253
    assert document["note"] == "ä" * 512
    assert len(str(document["reportingInstance"])) == 128


@pytest.mark.parametrize(
    ("problem", "event"),
    [
        pytest.param(
            Problem("Service shop/web", "AddressConflict", "port taken"),
            Event(EventType.WARNING, "AddressConflict", "Program", "node n1: port taken", WEB),
            id="address conflict",
        ),
        pytest.param(
            Problem("Service shop/web", "FailedToStartServiceHealthcheck", "in use"),
            Event(EventType.WARNING, "FailedToStartServiceHealthcheck", "Listen", "node n1: in use", WEB),
            id="health check port",
        ),
        pytest.param(
            Problem("healthz server", "FailedToStartProxierHealthcheck", "in use"),
            Event(EventType.WARNING, "FailedToStartProxierHealthcheck", "Listen", "in use", NODE),
            id="healthz server: on the node",
        ),
        pytest.param(Problem("Service shop/web", "InvalidAddress", "x"), None, id="another reason"),
        pytest.param(Problem("interface nodeagent0", "RejectedByKernel", "x"), None, id="not about a service"),
    ],
)
def test_problems_that_become_events(problem: Problem, event: Event | None) -> None:
    assert problem_event(problem, NODE, uid_of) == event
