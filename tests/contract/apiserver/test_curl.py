"""What needs nothing but curl: the protocol as it is on the wire, over TLS with a bearer token."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def command(api: Any) -> Callable[..., list[str]]:
    """The command line that asks for a path."""
    authority = str(api.server.credentials.authority)
    base = [
        "curl",
        "--silent",
        "--show-error",
        "--noproxy",
        "*",
        "--max-time",
        str(DEADLINE_SECONDS),
        "--cacert",
        authority,
    ]
    return lambda path, *options: [*base, *options, f"https://127.0.0.1:{api.server.port}{path}"]


@pytest.fixture(scope="module")
def bearer(api: Any) -> tuple[str, str]:
    return "--header", f"Authorization: Bearer {api.token}"


@pytest.fixture
def curl(command: Any, bearer: tuple[str, str]) -> Callable[..., Any]:
    """Asks as an administrator, sending a body when there is one; returns the JSON of the answer."""

    def run(path: str, *options: str, body: Any = None) -> Any:
        sent = () if body is None else ("--header", "Content-Type: application/json", "--data", json.dumps(body))
        done = subprocess.run(command(path, *bearer, *sent, *options), capture_output=True, check=True)
        return json.loads(done.stdout)

    return run


@pytest.fixture
def stream(command: Any, bearer: tuple[str, str]) -> Iterator[Callable[[str], Iterator[Any]]]:
    """Opens watches; the frames of each come as the lines do."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(path: str) -> Iterator[Any]:
        process = subprocess.Popen(command(path, *bearer, "--no-buffer"), stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        return (json.loads(line) for line in process.stdout)

    yield begin
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def service(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}


def test_create_read_list_and_delete(curl: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/services"
    made = curl(path, body=service("web"))
    assert curl(f"{path}/web") == made
    assert [item["metadata"]["name"] for item in curl(path)["items"]] == ["web"]
    assert curl(f"{path}/web", "--request", "DELETE")["metadata"]["uid"] == made["metadata"]["uid"]
    assert curl(f"{path}/web")["code"] == 404


def test_each_change_is_a_line_when_it_happens(curl: Any, stream: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/services"
    since = curl(path)["metadata"]["resourceVersion"]
    frames = stream(f"{path}?watch=1&resourceVersion={since}&timeoutSeconds={DEADLINE_SECONDS}")
    for name in ("first", "second"):
        # Each is asked for before the next is made, so no frame waits for another.
        made = curl(path, body=service(name))
        frame = next(frames)
        assert (frame["type"], frame["object"]) == ("ADDED", made)
    gone = curl(f"{path}/first", "--request", "DELETE")
    frame = next(frames)
    assert (frame["type"], frame["object"]["metadata"]["uid"]) == ("DELETED", gone["metadata"]["uid"])


def test_a_watch_ends_cleanly_when_its_time_is_up(command: Any, bearer: Any, curl: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/services"
    curl(path, body=service("web"))
    watch = command(f"{path}?watch=1&timeoutSeconds=1", *bearer, "--include", "--http1.1")
    # curl ends with 18 when the last chunk of a chunked answer is missing.
    done = subprocess.run(watch, capture_output=True, check=True)
    head, _, lines = done.stdout.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding: chunked" in head.lower()
    assert [json.loads(line)["type"] for line in lines.splitlines()] == ["ADDED"]


def test_without_the_authority_there_is_no_connection(api: Any) -> None:
    url = f"https://127.0.0.1:{api.server.port}/version"
    done = subprocess.run(["curl", "--silent", "--noproxy", "*", "--max-time", str(DEADLINE_SECONDS), url], check=False)
    assert done.returncode == 60


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="no token"),
        pytest.param(["--header", "Authorization: Bearer wrong"], id="a wrong token"),
    ],
)
def test_without_the_token_nothing_is_read(command: Any, options: list[str]) -> None:
    done = subprocess.run(command("/api/v1/services", *options), capture_output=True, check=True)
    assert json.loads(done.stdout)["code"] == 401
