"""`/metrics` of a running server: in kube-apiserver's names, for those who may, and no larger when clients ask for nonsense."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from nodeagent.apiserver.api.pki import GROUPS, add_user
from tests.contract.apiserver.conftest import DEADLINE_SECONDS, Api

SERVICES = "/api/v1/namespaces/default/services"
ROOT = Path(__file__).parents[3]
PROMTOOL = ROOT / ".tools" / "prometheus" / "promtool"
STEP_SECONDS = 0.02


class Scrape:
    """One, read by prometheus-client."""

    def __init__(self, api: Api) -> None:
        answer = api.call("GET", "/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        self.text = answer.body
        self._samples = [
            sample for family in text_string_to_metric_families(answer.body.decode()) for sample in family.samples
        ]

    def value(self, series: str, /, **labels: str) -> float:
        return sum(one.value for one in self._samples if one.name == series and labels.items() <= one.labels.items())

    @property
    def names(self) -> set[str]:
        return {line.split()[2] for line in self.text.decode().splitlines() if line.startswith("# TYPE ")}

    def __len__(self) -> int:
        return len(self._samples)


def until(api: Api, true: Callable[[Scrape], bool]) -> Scrape:
    """A watch that ends is noticed by the server in its own time."""
    waiting = threading.Event()
    for _ in range(int(60 / STEP_SECONDS)):
        found = Scrape(api)
        if true(found):
            return found
        waiting.wait(STEP_SECONDS)
    raise AssertionError(found.text.decode())


def test_requests_are_counted_by_verb_resource_and_code(api: Api) -> None:
    before = Scrape(api)
    body = {"metadata": {"name": "counted"}, "spec": {"ports": [{"port": 80}]}}
    assert api.call("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "kept"}}).status == 201
    assert api.call("POST", SERVICES, body).status == 201
    assert api.call("POST", SERVICES, body).status == 409
    assert api.call("GET", SERVICES).status == 200
    assert api.call("GET", f"{SERVICES}/counted").status == 200
    after = Scrape(api)

    def came(series: str, **labels: str) -> float:
        return after.value(series, **labels) - before.value(series, **labels)

    total = "apiserver_request_total"
    assert came(total, verb="POST", resource="services", scope="resource", code="201") == 1
    assert came(total, verb="POST", resource="services", code="409") == 1
    assert came(total, verb="LIST", resource="services", scope="namespace", group="", version="v1", code="200") == 1
    assert came(total, verb="GET", resource="services", scope="resource", component="apiserver", code="200") == 1
    assert came("apiserver_request_duration_seconds_count", verb="POST", resource="services") == 2
    # The server itself makes Services and ConfigMaps, in its own time; Secrets it makes none.
    assert came("apiserver_storage_objects", resource="secrets") == 1
    assert came("apiserver_resource_objects", group="", resource="secrets") == 1
    assert after.value("apiserver_storage_objects", resource="servicecidrs.networking.k8s.io") == 1
    assert after.value("apiserver_current_inflight_requests", request_kind="readOnly") >= 1
    assert after.value("process_resident_memory_bytes") > 0
    assert after.value("kubernetes_healthcheck", name="ping", type="readyz") == 1


def test_a_watch_that_is_open_is_seen(api: Api) -> None:
    def watches(found: Scrape) -> float:
        return found.value("apiserver_longrunning_requests", verb="WATCH", resource="configmaps", scope="cluster")

    connection = api.connect()
    path = "/api/v1/configmaps?watch=1&timeoutSeconds=600"
    connection.request("GET", path, None, {"Authorization": f"Bearer {api.token}"})
    assert connection.getresponse().status == 200
    until(api, lambda found: watches(found) == 1)
    connection.close()
    until(api, lambda found: watches(found) == 0)


def test_administrators_and_readers_may_scrape(start: Callable[..., Any], tmp_path: Path) -> None:
    api = start()
    tokens = tmp_path / "pki" / "tokens.csv"
    reader, agent = (add_user(tokens, role, GROUPS[role]) for role in ("reader", "agent"))
    allowed = [api.call("GET", path, token=reader).status for path in ("/metrics", "//metrics/", "/%6detrics")]
    assert allowed == [200, 200, 200]
    refused = [api.call("GET", path, token=agent).status for path in ("/metrics", "//metrics/", "/%6detrics")]
    assert refused == [403, 403, 403]
    assert api.call("GET", "/metrics", token=None).status == 401
    assert api.call("GET", "/metrics", token="wrong").status == 401
    assert api.call("POST", "/metrics").status == 405
    assert Scrape(api).value("apiserver_request_total", resource="", subresource="", code="401") == 2


def test_nonsense_makes_no_series(api: Api) -> None:
    def ask(number: int) -> None:
        hostile = f"a{number}%22%7D%0a"
        for method in ("GET", f"BREW{number}"):
            for path in (f"/{hostile}", f"/api/{hostile}/x", f"{SERVICES}/{hostile}", f"{SERVICES}/a/{hostile}"):
                api.call(method, path)
                api.call(method, path, token=None)

    ask(0)
    before = len(Scrape(api))
    for number in range(1, 6):
        ask(number)
    after = Scrape(api)
    assert len(after) == before
    assert b"BREW" not in after.text
    assert b"a1" not in after.text


def test_promtool_finds_nothing_wrong(api: Api) -> None:
    assert PROMTOOL.exists(), f"{PROMTOOL} is missing: make {PROMTOOL.relative_to(ROOT)}"
    text = Scrape(api).text

    def complaints(text: bytes) -> str:
        done = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False, timeout=DEADLINE_SECONDS * 3
        )
        return (done.stdout + done.stderr).decode()

    assert complaints(text) == ""
    assert complaints(text.replace(b"apiserver_request_total", b"apiserver_requests")) != ""


def test_every_name_is_documented(api: Api) -> None:
    text = (ROOT / "docs" / "apiserver.md").read_text()
    reported = {name for name in Scrape(api).names if not name.startswith(("process_", "python_"))}
    assert [name for name in sorted(reported) if f"`{name}`" not in text] == []
