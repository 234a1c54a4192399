"""Connections that keep others out where they can: they cannot."""

import asyncio
import contextlib
import errno
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nodeagent.apiserver.api.listener import Listener
from nodeagent.runtime.logs.setup import TextFormatter
from nodeagent.runtime.serving.admission import Admission, ConnectionLimits

DEADLINE_SECONDS = 60.0
TCP_ESTABLISHED = "01"
FEW = ConnectionLimits(total=60, per_address=50, strangers=20, strangers_per_address=15, stranger_s=0.2)


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(DEADLINE_SECONDS)
    with contextlib.suppress(OSError):
        return connection.recv(1) == b""
    return True


def test_idle_unknown_clients_make_room_for_each_other_and_are_closed(start: Callable[..., Any]) -> None:
    api = start(connections=FEW)
    idle = []
    for number in range(60):
        connection = api.connect()
        connection.connect()
        idle.append(connection)
        if number % 10 == 9:
            assert api.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    assert all(is_closed(connection.sock) for connection in idle)
    for connection in idle:
        connection.close()


def test_bytes_other_than_tls_keep_nobody_out(start: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    api = start(connections=FEW)
    address = ("127.0.0.1", api.server.port)
    silent = [socket.create_connection(address) for _ in range(40)]
    noisy = [socket.create_connection(address) for _ in range(40)]
    for connection in noisy:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n\x1b[31m")
    assert api.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    assert all(is_closed(connection) for connection in silent + noisy)
    for connection in silent + noisy:
        connection.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_watch_is_not_closed_to_make_room_for_unknown_clients(start: Callable[..., Any]) -> None:
    api = start(connections=FEW)
    watch = api.connect()
    path = "/api/v1/namespaces?watch=1&timeoutSeconds=60"
    watch.request("GET", path, None, {"Authorization": f"Bearer {api.token}"})
    response = watch.getresponse()
    idle = [api.connect() for _ in range(80)]
    for connection in idle:
        connection.connect()
    assert b"ADDED" in response.readline()
    assert api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "late"}}).status == 201
    while b"late" not in response.readline():
        pass
    for connection in [watch, *idle]:
        connection.close()


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/openapi/v2", "/api/v1/namespaces?watch=1"])
def test_a_client_that_closes_behind_its_request_is_not_logged(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture, path: str
) -> None:
    api = start()
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n\r\n".encode()
    connection = api.connect()
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    connection.sock.sendall(request)
    connection.sock.settimeout(0)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.sock.unwrap()  # leaves in the segment of the request
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    assert is_closed(connection.sock)
    assert api.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x1b[31m\r\n\r\n",
        b"GET /\xff\x1b]0;x\x07 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA B: \x1b\r\n\r\n",
    ],
    ids=["bytes", "path", "header"],
)
def test_bytes_other_than_http_are_refused_and_not_logged(
    api: Any, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    connection = api.connect()
    connection.connect()
    for request in (b"", b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"):
        with contextlib.suppress(OSError):
            connection.sock.sendall(request + garbage)
            connection.sock.settimeout(DEADLINE_SECONDS)
            while connection.sock.recv(4096):
                pass
    connection.close()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_a_failed_accept_pauses_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="here")

    async def scenario() -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        accept, failures = loop.sock_accept, 0

        async def failing(sock: socket.socket) -> Any:
            nonlocal failures
            if failures < 10:
                failures += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await accept(sock)

        loop.sock_accept = failing  # type: ignore[method-assign]
        admission = Admission(ConnectionLimits(), time.monotonic)
        async with Listener(answer, "127.0.0.1", 0, None, admission=admission, pause_s=0.01) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            said = await reader.read()
            writer.close()
        return failures, said

    failures, said = asyncio.run(scenario())
    assert (failures, said.endswith(b"here")) == (10, True)
    messages = [record.getMessage() for record in caplog.records if record.name.endswith("listener")]
    assert len(messages) == 2
    assert "Too many open files" in messages[0]


def test_no_bearer_token_and_no_path_reaches_the_log_as_it_is(
    api: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    formatter = TextFormatter(journald=False)
    for token in (b"\xff", b"\xff\xfe", b"a\xe2\x80\xae", b"\x80" * 3000):
        connection = api.connect()
        connection.connect()
        head = b"GET /api/v1/namespaces/a%0a%1b%5b31m HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token
        connection.sock.sendall(head + b"\r\n\r\n")
        assert connection.sock.recv(4096).startswith(b"HTTP/1.1 401 ")
        connection.close()
    written = [formatter.format(record) for record in caplog.records] + [capsys.readouterr().err]
    assert [line for line in written if line] == []


def test_a_request_that_breaks_the_server_is_logged_with_its_path_escaped(
    api: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("what\x1b[31m\nforged: line")

    monkeypatch.setattr("nodeagent.apiserver.api.handler.parse_target", broken)
    assert api.call("GET", "/api/v1/a%0aforged%1b%5b31m").status == 500
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    lines = TextFormatter(journald=False).format(record).split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("forged") for line in lines[:1])


def watches_open(api: Any) -> float:
    text = api.call("GET", "/metrics").body.decode()
    found = [line for line in text.splitlines() if line.startswith("apiserver_longrunning_requests{")]
    return sum(float(line.rpartition(" ")[2]) for line in found if 'resource="configmaps"' in line)


def test_a_watch_that_takes_nothing_is_ended_and_one_that_reads_is_not(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = start()
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(8):
        body = {"metadata": {"name": f"big-{number}"}, "data": {"x": "y" * 1_000_000}}
        assert api.call("POST", path, body).status == 201
    monkeypatch.setattr("nodeagent.apiserver.api.sending._PIECE_SECONDS", 1.0)
    credentials = {"Authorization": f"Bearer {api.token}"}
    still = api.connect()
    still.sock = socket.socket()
    still.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    still.sock.connect(("127.0.0.1", api.server.port))
    still.sock = api._context.wrap_socket(still.sock, server_hostname="127.0.0.1")
    still.request("GET", f"{path}?watch=1", None, credentials)
    assert still.sock.recv(9) == b"HTTP/1.1 "
    reading = api.connect()
    reading.request(
        "GET", f"{path}?watch=1&resourceVersion={api.get(path)['metadata']['resourceVersion']}", None, credentials
    )
    response = reading.getresponse()
    ends = time.monotonic() + DEADLINE_SECONDS
    while watches_open(api) != 1:
        assert time.monotonic() < ends
        time.sleep(0.1)
    api.call("POST", path, {"metadata": {"name": "last"}})
    assert json.loads(response.readline())["object"]["metadata"]["name"] == "last"
    reading.close()
    still.close()


def is_held(port: int, client_port: int) -> bool:
    """Whether the server's end of a connection is open: the client hears of its end only once it has read."""
    ends = f"0100007F:{port:04X} 0100007F:{client_port:04X} {TCP_ESTABLISHED} "
    return ends in Path("/proc/net/tcp").read_text()


def test_an_object_that_is_not_taken_is_given_up(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is sent as a whole: the connection would keep all of it for as long as it likes."""
    monkeypatch.setattr("nodeagent.apiserver.api.sending._PIECE_SECONDS", 0.3)
    api = start()
    path = "/api/v1/namespaces/default/configmaps"
    assert api.call("POST", path, {"metadata": {"name": "big"}, "data": {"x": "y" * 400_000}}).status == 201
    still = api.connect()
    still.sock = socket.socket()
    still.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    still.sock.connect(("127.0.0.1", api.server.port))
    still.sock = api._context.wrap_socket(still.sock, server_hostname="127.0.0.1")
    still.request("GET", f"{path}/big", None, {"Authorization": f"Bearer {api.token}"})
    ends = time.monotonic() + DEADLINE_SECONDS
    while is_held(api.server.port, still.sock.getsockname()[1]):
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert api.get(f"{path}/big")["metadata"]["name"] == "big"
    still.close()
