"""A directory of the API server goes from earlier revisions to this one and back: objects, certificates and tokens stay."""

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.earlier_revision import LAST_OF_SCHEMA, unpack

PRESENT = [sys.executable, "-m", "nodeagent"]
DEADLINE_SECONDS = 60.0
COLLECTIONS = {
    "services": "/api/v1/namespaces/default/services",
    "slices": "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    "nodes": "/api/v1/nodes",
}
SLICE = {
    "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    "endpoints": [{"addresses": ["10.244.1.2"], "conditions": {"ready": True}, "nodeName": "node-a"}],
}


def service(name: str) -> dict[str, Any]:
    """A Service without a selector: no controller makes slices for it while the test looks."""
    return {
        "metadata": {"name": name},
        "spec": {"type": "NodePort", "ports": [{"name": "http", "port": 80}]},
    }


class Server:
    """A running server, with the credentials that it was given at first."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self.url = cluster["server"]
        self.credentials = document["users"][0]["user"]["token"], cluster["certificate-authority-data"]

    def call(self, path: str, method: str = "GET", body: object = None, credentials: tuple[str, str] = ("", "")) -> Any:
        token, authority = credentials if any(credentials) else self.credentials
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        trust = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS, context=trust) as response:
            return json.load(response)

    def objects(self) -> dict[str, dict[str, Any]]:
        """Every object by kind and name, but those of the server itself: uid, revision, labels and content."""
        found = {}
        for kind, path in COLLECTIONS.items():
            for item in self.call(path)["items"]:
                if item["metadata"]["name"] == "kubernetes":
                    continue
                kept = {
                    key: item["metadata"].get(key) for key in ("uid", "resourceVersion", "creationTimestamp", "labels")
                }
                content = {key: value for key, value in item.items() if key not in ("metadata", "kind", "apiVersion")}
                found[f"{kind}/{item['metadata']['name']}"] = kept | content
        return found


@contextmanager
def running(command: Sequence[str], directory: Path) -> Iterator[Server]:
    """A server of this command on the directory; ended by SIGTERM."""
    kubeconfig, log = directory / "kubeconfig", directory / "log"
    kubeconfig.unlink(missing_ok=True)
    options = ["--listen", "127.0.0.1:0", "--data-dir", str(directory / "data"), "--kubeconfig-out", str(kubeconfig)]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "apiserver", *options], env=os.environ, stderr=output)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not kubeconfig.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        yield Server(kubeconfig)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


WRITABLE = tuple(one for one in LAST_OF_SCHEMA if one.schema > 1)
"""The revision of schema 1 writes rows without the names of their columns: it cannot write where a later one has added a column."""


@pytest.fixture(params=WRITABLE, ids=lambda earlier: f"schema {earlier.schema}")
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command of an earlier revision."""
    place = tmp_path / "earlier"
    place.mkdir()
    return unpack(request.param, place)


def test_stored_objects_survive_an_upgrade_and_a_rollback(earlier: list[str], tmp_path: Path) -> None:
    with running(earlier, tmp_path) as server:
        credentials = server.credentials
        server.call("/api/v1/nodes", "POST", {"metadata": {"name": "node-a"}})
        for name in ("web", "shop"):
            server.call(COLLECTIONS["services"], "POST", service(name))
        server.call(COLLECTIONS["slices"], "POST", SLICE)
        before = server.objects()
    assert {"services/web", "services/shop", "slices/web-1", "nodes/node-a"} <= before.keys()

    with running(PRESENT, tmp_path) as server:
        assert server.objects() == before
        server.call(COLLECTIONS["services"] + "/shop", "DELETE")
        server.call(COLLECTIONS["services"], "POST", service("new"), credentials)
        here = server.objects()
    assert here.keys() == before.keys() - {"services/shop"} | {"services/new"}

    with running(earlier, tmp_path) as server:
        assert server.objects() == here
        server.call(COLLECTIONS["services"], "POST", service("newer"), credentials)
        back = server.objects()
    services = [one["spec"] for name, one in back.items() if name.startswith("services/")]
    assert len({one["clusterIP"] for one in services}) == len(services)
    ports = [port["nodePort"] for one in services for port in one["ports"] if "nodePort" in port]
    assert len(set(ports)) == len(ports) == 3

    with running(PRESENT, tmp_path) as server:
        assert server.objects() == back
