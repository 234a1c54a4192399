"""`nodeagent apiserver` as a process: starting, stopping, being killed, and what it leaves on disk."""

import base64
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.lab.net.namespace_process import Running
from tests.harness import api_processes
from tests.harness.warm_start import AGENT, WarmLauncher

COMMAND = [sys.executable, "-m", "nodeagent", "apiserver"]
DEADLINE_SECONDS = 60.0


class Client:
    """Reads a kubeconfig and calls the server it names."""

    def __init__(self, config: Path) -> None:
        document = yaml.safe_load(config.read_text())
        cluster = document["clusters"][0]["cluster"]
        self.url = cluster["server"]
        self.headers = {"Authorization": f"Bearer {document['users'][0]['user']['token']}"}
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=authority)

    def open(self, path: str, method: str = "GET", body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {**self.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        return urllib.request.urlopen(request, timeout=DEADLINE_SECONDS, context=self.context)

    def call(self, path: str, method: str = "GET", body: Any = None) -> Any:
        with self.open(path, method, body) as response:
            return json.load(response)


Server = tuple[Running, Client]

NO_MORE_THREADS = """
import threading
from nodeagent.apiserver.api_server import ApiServer
stop = ApiServer.stop
def stop_without_threads(server):
    threading.Thread.start = lambda thread: threading.Event().wait()
    stop(server)
ApiServer.stop = stop_without_threads
"""
"""Who starts a thread waits forever, as in CPython where the new thread gets no memory (python/cpython#140746)."""


@contextmanager
def running(launcher: WarmLauncher | None, directory: Path, *arguments: str, **environment: str) -> Iterator[Server]:
    """A server on a free port, ready; killed in the end if it is still there. Without a launcher an interpreter of its own."""
    config, log = directory / "kubeconfig", directory / "log"
    config.unlink(missing_ok=True)
    options = ["--listen", "127.0.0.1:0", "--kubeconfig-out", str(config), *arguments]
    variables = {**os.environ, **environment}
    process: Running
    with log.open("wb") as output:
        if launcher is not None:
            process = launcher.start("", [*AGENT, "apiserver", *options], variables, output.fileno())
        else:
            process = subprocess.Popen([*COMMAND, *options], env=variables, stderr=output)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not config.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield process, Client(config)
    finally:
        process.kill()
        process.wait()


def ended(launcher: WarmLauncher, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return launcher.command("", ["apiserver", *arguments], timeout=DEADLINE_SECONDS)


def test_systemd_is_notified_of_start_and_end(tmp_path: Path) -> None:
    """A program, as systemd starts it; the other tests fork it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(DEADLINE_SECONDS)
        with running(None, tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify")) as (process, client):
            assert notified.recv(4096).startswith(b"READY=1")
            assert client.call("/version")["major"] == "1"
            process.send_signal(signal.SIGTERM)
            assert notified.recv(4096).startswith(b"STOPPING=1")
            assert process.wait(DEADLINE_SECONDS) == 0


def test_a_server_that_gets_no_memory_for_threads_ends(tmp_path: Path) -> None:
    with api_processes.running(tmp_path, 1, planted=NO_MORE_THREADS) as [server]:
        ends = time.monotonic() + DEADLINE_SECONDS
        while server.url is None:
            assert time.monotonic() < ends
            time.sleep(0.01)
        server.end()


def test_the_log_can_be_json(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    with running(warm_launcher, tmp_path, "--log-format", "json") as (process, client):
        assert client.call("/version")["major"] == "1"
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_SECONDS)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert any(line["msg"].startswith("serving address=127.0.0.1 ") for line in lines)
    assert all({"ts", "level", "logger", "msg"} <= line.keys() for line in lines)


def test_stopping_ends_watches_cleanly(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    with running(warm_launcher, tmp_path) as (process, client):
        response = client.open("/api/v1/namespaces?watch=1&timeoutSeconds=600")
        assert json.loads(response.readline())["type"] == "ADDED"
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.extend(response.readlines()))
        reader.start()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
        reader.join(DEADLINE_SECONDS)
        assert not reader.is_alive()
        # The last chunk arrived: a stream that was cut off would have raised IncompleteRead in the reader.
        assert all(json.loads(line)["type"] in ("ADDED", "MODIFIED") for line in lines)
        response.close()


def test_a_killed_server_comes_back_with_everything(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    with running(warm_launcher, tmp_path, *data) as (process, client):
        client.call("/api/v1/namespaces", "POST", {"metadata": {"name": "demo"}})
        body = {"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        created = client.call("/api/v1/namespaces/demo/services", "POST", body)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with running(warm_launcher, tmp_path, *data) as (process, client):
        assert client.call("/api/v1/namespaces/demo/services/web") == created
        found = client.call(
            f"/api/v1/services?resourceVersion={created['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
        )
        assert created["metadata"]["uid"] in {item["metadata"]["uid"] for item in found["items"]}


def test_secrets_on_disk_are_their_owners(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    with running(warm_launcher, tmp_path, "--data-dir", str(tmp_path / "data")):
        assert stat.S_IMODE((tmp_path / "kubeconfig").stat().st_mode) == 0o600
        for path in (tmp_path / "data").rglob("*"):
            if path.suffix in (".key", ".csv", ".db") or path.name.endswith("-wal"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_a_client_certificate_is_a_user(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    pki = tmp_path / "data" / "pki"
    with running(warm_launcher, tmp_path, "--data-dir", str(tmp_path / "data")) as (_, client):
        client.headers = {}
        for name, allowed in (("admin", True), ("reader", False)):
            context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
            client.context = context
            assert client.call("/api/v1/namespaces")["kind"] == "NamespaceList"
            body = {"metadata": {"name": f"by-{name}"}}
            if allowed:
                assert client.call("/api/v1/namespaces", "POST", body)["metadata"]["name"] == "by-admin"
            else:
                with pytest.raises(urllib.error.HTTPError, match="403"):
                    client.call("/api/v1/namespaces", "POST", body)


def test_a_snapshot_restores_into_another_directory(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    apiserver = partial(ended, warm_launcher)
    data, copy, other = tmp_path / "data", tmp_path / "copy", tmp_path / "other"
    with running(warm_launcher, tmp_path, "--data-dir", str(data)) as (_, client):
        client.call("/api/v1/namespaces", "POST", {"metadata": {"name": "kept"}})
        assert apiserver("--data-dir", str(data), "snapshot", str(copy)).returncode == 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert apiserver("--data-dir", str(other), "restore", str(copy)).returncode == 0
    again = apiserver("--data-dir", str(other), "restore", str(copy))
    assert (again.returncode, "exists" in again.stderr) == (2, True)
    with running(warm_launcher, tmp_path, "--data-dir", str(other)) as (_, client):
        assert client.call("/api/v1/namespaces/kept")["status"]["phase"] == "Active"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--listen", "0.0.0.0:0", "--insecure"], "without TLS and credentials", id="open to all"),
        pytest.param(["--service-cluster-ip-range", "10.96.0.0/30"], "at least 8", id="small range"),
        pytest.param(["--service-cluster-ip-range", "127.0.0.0/8"], "loopback", id="loopback range"),
        pytest.param(["--pod-cidr", "10.100.0.0/16"], "overlaps the pod range 10.100.0.0/16", id="overlaps the pods"),
        pytest.param(["--listen", "nowhere"], "is not an address and a port", id="listen"),
        pytest.param(["--listen", "::1:0000000070000"], "is not an address and a port", id="a long port"),
    ],
)
def test_forbidden_settings_end_the_start_with_the_reason(
    warm_launcher: WarmLauncher, arguments: list[str], said: str
) -> None:
    result = ended(warm_launcher, *arguments)
    assert result.returncode == 2
    assert said in result.stderr


def test_a_range_cannot_change_under_the_services_in_it(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    with running(warm_launcher, tmp_path, *data):
        pass
    other_range = ("--service-cluster-ip-range", "10.80.0.0/16")
    result = ended(warm_launcher, "--listen", "127.0.0.1:0", *data, *other_range)
    assert (result.returncode, "uses service range 10.96.0.0/12" in result.stderr) == (2, True)
