"""A Service that no watch has brought is asked for once, and its one cause is named."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.diagnosis.explain.service import explain_missing
from nodeagent.model.names import ObjectKey
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.source.client.api_errors import ServerFailedError
from nodeagent.proxy.source.unwatched_service import ask_api_server, read_manifests

DB = ObjectKey("default", "db")


class Server:
    """Lists what it has, whatever the selectors say."""

    def __init__(self, *services: dict[str, Any], error: Exception | None = None) -> None:
        self.services, self.error = services, error
        self.asked: list[str] = []

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes:
        self.asked.append(f"{path}?{'&'.join(f'{name}={value}' for name, value in parameters)}")
        if self.error is not None:
            raise self.error
        kind, items = ("ServiceList", self.services) if path.endswith("services") else ("EndpointSliceList", ())
        return json.dumps({"kind": kind, "metadata": {}, "items": items}).encode()


def service(name: str, cluster_ip: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"clusterIP": cluster_ip, "ports": [{"port": 80}]},
    }


def found(server: Server) -> UnwatchedService:
    return asyncio.run(ask_api_server(server, DB))


def test_one_request_shows_that_the_service_does_not_exist() -> None:
    server = Server(service("other", "10.96.0.1"))
    assert found(server) == UnwatchedService()
    assert server.asked == ["/api/v1/namespaces/default/services?fieldSelector=metadata.name=db"]


def test_a_headless_service_comes_with_its_slices() -> None:
    server = Server(service("db", "None"))
    reported = found(server)
    assert reported.service is not None
    assert reported.service.spec.cluster_ip == "None"
    assert len(server.asked) == 2


def test_a_server_that_fails_is_named() -> None:
    reported = found(Server(error=ServerFailedError(500, "out of order")))
    assert reported.service is None
    assert "out of order" in reported.silence


def test_a_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "db.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "Service", **service("db", "None")}))
    reported = read_manifests(tmp_path, "node-a", DB)
    assert reported.service is not None
    assert read_manifests(tmp_path, "node-a", ObjectKey("default", "dc")) == UnwatchedService()
    assert "no-such" in read_manifests(tmp_path / "no-such", "node-a", DB).silence


@pytest.mark.parametrize(
    ("unwatched", "says", "says_not"),
    [
        pytest.param(UnwatchedService(), "has no Service of that name", "another proxy", id="asked"),
        pytest.param(UnwatchedService(silence="it is off"), "another proxy is to serve it (it is off)", "has no", id="silent"),
        pytest.param(None, "another proxy", "has no Service of", id="not asked"),
    ],
)  # fmt: skip
def test_the_verdict_names_one_cause_where_the_source_knows(
    unwatched: UnwatchedService | None, says: str, says_not: str
) -> None:
    verdict = explain_missing(DB, (), (), unwatched).verdict
    assert says in verdict
    assert says_not not in verdict
