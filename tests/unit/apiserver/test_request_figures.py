"""What requests are counted under: words of which there are few, whatever a client asks for."""

import itertools

from prometheus_client.parser import text_string_to_metric_families

from nodeagent.apiserver.api.request_figures import (
    REQUEST_SECONDS,
    Labels,
    RequestFigures,
    labels_of_path,
    labels_of_resource,
    labels_without_credentials,
)
from nodeagent.apiserver.api.request_target import parse_target, verb_of
from nodeagent.kinds.catalog import all_kinds
from nodeagent.runtime.figures.exposition import Exposition

SERVICES = "api/v1/namespaces/default/services"
HOSTILE = ("%0a", 'a"} 1', "x" * 4000, "", "status", "exec", "..")


def about(method: str, path: str, dry_run: str | None = None, content_type: str = "") -> Labels:
    target = parse_target(tuple(path.split("/")))
    assert target is not None
    resource = all_kinds().find(target.group, target.version, target.plural)
    assert resource is not None
    verb = verb_of(method, target, {})
    return labels_of_resource(verb, method, resource, target, dry_run=dry_run, content_type=content_type)


class Scene:
    """Figures with a clock of the test's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.figures = RequestFigures(lambda: self.now)

    def value(self, name: str, **labels: str) -> float:
        return sum(
            sample.value
            for family in text_string_to_metric_families(Exposition().text(self.figures.instruments()).decode())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def test_verbs_and_scopes_are_those_of_kube_apiserver() -> None:
    apply = about("PATCH", f"{SERVICES}/a", content_type="application/apply-patch+yaml")
    reported = [
        about("GET", SERVICES),
        about("HEAD", f"{SERVICES}/a"),
        about("POST", SERVICES),
        about("PUT", f"{SERVICES}/a/status"),
        about("GET", "api/v1/nodes"),
        about("DELETE", SERVICES),
    ]
    assert [(one.verb, one.subresource, one.scope) for one in (*reported, apply)] == [
        ("LIST", "", "namespace"),
        ("GET", "", "resource"),
        ("POST", "", "resource"),
        ("PUT", "status", "resource"),
        ("LIST", "", "cluster"),
        ("DELETECOLLECTION", "", "namespace"),
        ("APPLY", "", "resource"),
    ]


def test_the_buckets_are_those_of_kube_apiserver() -> None:
    assert len(REQUEST_SECONDS) == 23
    assert (REQUEST_SECONDS[0], REQUEST_SECONDS[-1]) == (0.005, 60.0)
    assert list(REQUEST_SECONDS) == sorted(set(REQUEST_SECONDS))


def test_no_client_makes_a_label() -> None:
    made = {labels_of_path(method, path) for method, path in itertools.product(HOSTILE, HOSTILE)}
    made |= {labels_without_credentials(method) for method in HOSTILE}
    made |= {
        about(method, f"{SERVICES}/a/{part}", dry_run=part) for method, part in itertools.product(HOSTILE, HOSTILE)
    }
    texts = {text for one in made for text in (one.verb, one.dry_run, one.resource, one.subresource, one.scope)}
    assert texts == {"other", "", "invalid", "services", "status", "resource"}


def test_a_request_is_counted_with_its_code_and_its_time() -> None:
    scene = Scene()
    began = scene.figures.begin(about("GET", SERVICES))
    scene.now += 0.3
    scene.figures.answered(about("GET", SERVICES), began, 200, 12_000)
    assert scene.value("apiserver_request_total", verb="LIST", resource="services", code="200") == 1
    assert scene.value("apiserver_request_duration_seconds_bucket", verb="LIST", le="0.2") == 0
    assert scene.value("apiserver_request_duration_seconds_bucket", verb="LIST", le="0.4") == 1
    assert scene.value("apiserver_response_sizes_sum", verb="LIST") == 12_000


def test_in_flight_is_the_most_within_a_second() -> None:
    scene = Scene()
    asked = about("GET", SERVICES)
    begun = [scene.figures.begin(asked) for _ in range(3)]
    for began in begun:
        scene.figures.answered(asked, began, 200, 0)
    assert scene.value("apiserver_current_inflight_requests", request_kind="readOnly") == 3
    scene.now += 1
    assert scene.value("apiserver_current_inflight_requests", request_kind="readOnly") == 3
    scene.now += 1
    assert scene.value("apiserver_current_inflight_requests") == 0


def test_a_watch_runs_for_long_and_is_counted_when_it_ends() -> None:
    scene = Scene()
    watch = Labels("WATCH", "", "", "v1", "services", "", "cluster")
    began = scene.figures.begin(watch)
    scene.figures.streams(watch)
    scene.now += 5
    assert scene.value("apiserver_longrunning_requests", verb="WATCH", resource="services") == 1
    assert scene.value("apiserver_current_inflight_requests") == 0
    assert scene.value("apiserver_request_total") == 0
    scene.figures.ended(watch, began)
    assert scene.value("apiserver_longrunning_requests", verb="WATCH") == 0
    assert scene.value("apiserver_request_total", verb="WATCH", code="200") == 1
