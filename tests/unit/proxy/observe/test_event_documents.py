"""Event objects as the API server gets them, and which problems become one."""

from datetime import UTC, datetime

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.observe.event_documents import (
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


def uid_of(kind: str, key: ObjectKey) -> str | None:
    return f"uid-{key.name}" if key.name != "gone" else None


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


SLICE = Regarding("EndpointSlice", "shop", "web-1", "uid-web-1")
CIDR = Regarding("ServiceCIDR", "", "range", "uid-range")


@pytest.mark.parametrize(
    ("problem", "action", "note", "regarding"),
    [
        pytest.param(
            Problem("Service shop/web", "AddressConflict", "taken"), "Program", "taken", WEB, id="address conflict"
        ),
        pytest.param(Problem("Service shop/web", "InvalidPort", "70000"), "Program", "70000", WEB, id="port"),
        pytest.param(Problem("EndpointSlice shop/web-1", "InvalidAddress", "x"), "Program", "x", SLICE, id="slice"),
        pytest.param(Problem("ServiceCIDR range", "InvalidCIDR", "x"), "Program", "x", CIDR, id="service CIDR"),
        pytest.param(Problem("Node n2", "NoPodCIDR", "x"), "Program", "x", node_regarding("n2"), id="node"),
        pytest.param(
            Problem("Service shop/gone", "Undecodable", "x"),
            "Read",
            "x",
            Regarding("Service", "shop", "gone", ""),
            id="an object that could not be decoded has no uid",
        ),
        pytest.param(
            Problem("Service shop/web", "InvalidAddress", "a\x1b[2J"),
            "Program",
            r"a\x1b[2J",
            WEB,
            id="control characters",
        ),
    ],
)
def test_a_problem_seen_by_every_node_is_one_event(
    problem: Problem, action: str, note: str, regarding: Regarding
) -> None:
    event = problem_event(problem, NODE, uid_of)
    assert event == Event(EventType.WARNING, problem.reason, action, note, regarding, shared=True)
    assert event == problem_event(problem, node_regarding("another"), uid_of)
    assert event_name(event, "a") == event_name(event, "b"), "for every writer"
    assert creation(event, name="x", instance="i", first=NOON, series=Series(1, NOON))["regarding"]


@pytest.mark.parametrize(
    ("problem", "event"),
    [
        pytest.param(
            Problem("Service shop/web", "FailedToStartServiceHealthcheck", "in use"),
            Event(EventType.WARNING, "FailedToStartServiceHealthcheck", "Listen", "node n1: in use", WEB),
            id="health check port",
        ),
        pytest.param(
            Problem("Service shop/web", "RejectedByKernel", "no"),
            Event(EventType.WARNING, "RejectedByKernel", "Program", "node n1: no", WEB),
            id="the node's kernel",
        ),
        pytest.param(
            Problem("healthz server", "FailedToStartProxierHealthcheck", "in use"),
            Event(EventType.WARNING, "FailedToStartProxierHealthcheck", "Listen", "in use", NODE),
            id="healthz server: on the node",
        ),
    ],
)
def test_a_problem_of_this_node_only_names_the_node(problem: Problem, event: Event) -> None:
    assert problem_event(problem, NODE, uid_of) == event
    assert event_name(event, "a") != event_name(event, "b")


def test_another_object_another_reason_another_text_are_other_events() -> None:
    problems = [
        Problem("Service shop/web", "InvalidPort", "70000"),
        Problem("Service shop/web", "InvalidPort", "70001"),
        Problem("Service shop/web", "DuplicatePort", "70000"),
        Problem("Service shop/web2", "InvalidPort", "70000"),
        Problem("EndpointSlice shop/web", "InvalidPort", "70000"),
    ]
    events = [event for problem in problems if (event := problem_event(problem, NODE, uid_of))]
    recreated = problem_event(problems[0], NODE, lambda kind, key: "another uid")
    assert recreated is not None
    assert len({event_name(event, "") for event in [*events, recreated]}) == 6


@pytest.mark.parametrize(
    "subject",
    [
        "interface nodeagent0",
        "configuration nodePortAddresses",
        "file a.yaml:3",
        "API resource services",
        "Service without a name",
        "Service ../../secrets/x",
        "Service shop/a/b",
        "Service shop/a?b",
        "Service shop/UPPER",
        "ServiceCIDR of the configuration",
        "Service shop/unknown",
    ],
)
def test_a_problem_without_an_object_has_no_event(subject: str) -> None:
    known = ("web", "web-1", "range")
    assert (
        problem_event(Problem(subject, "InvalidPort", "x"), NODE, lambda _, key: "u" if key.name in known else None)
        is None
    )
