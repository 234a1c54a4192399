"""Connections by the thousand: idle, slow, half-open, and such that are never read from."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attack.server_process import Victim, victim
from tests.harness.stopwatch import allowed

IDLE = 9000
GROWTH_MB = 150
KEPT_MB = 60
UNREAD_MB = 60
KEPT_ALIVE = 1500
KEPT_ALIVE_KB = 50
UNREAD_MADE_MB = 200
"""Of what is made for one client alone, each keeps an object."""
ANSWER_SECONDS = allowed(5.0)


def serves(server: Victim) -> None:
    started = time.monotonic()
    status, _ = server.ask("GET", "/api/v1/namespaces/default")
    assert status == 200
    assert time.monotonic() - started < ANSWER_SECONDS


def close_all(connections: list[socket.socket]) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.close()


def test_nine_thousand_idle_connections_cost_little_and_it_is_given_back(tmp_path: Path) -> None:
    with victim(tmp_path) as server:
        serves(server)
        before = server.megabytes
        idle: list[socket.socket] = []
        most = 0.0
        for number in range(IDLE):
            with contextlib.suppress(OSError):
                idle.append(server.connect())
            if number % 500 == 0:
                most = max(most, server.megabytes)
                serves(server)
        most = max(most, server.megabytes)
        print(f"{IDLE} idle connections over TLS: {most - before:.0f} MB more, {server.files} files open")
        assert most - before < GROWTH_MB
        close_all(idle)
        server.until(lambda: server.files < 100 and server.megabytes - before < KEPT_MB)
        print(f"when they had gone: {server.megabytes - before:.0f} MB more")
        serves(server)
        assert len(b"".join(server.log)) < 10_000


def test_connections_with_credentials_cost_little_each(tmp_path: Path) -> None:
    with victim(tmp_path) as server, contextlib.ExitStack() as kept:
        serves(server)
        before = server.megabytes
        request = f"GET /api/v1/namespaces/default HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        for _ in range(KEPT_ALIVE):
            connection = kept.enter_context(server.connect())
            connection.sendall(request.encode())
            assert connection.recv(65536)
        each = (server.megabytes - before) * 1024 / KEPT_ALIVE
        print(f"{KEPT_ALIVE} connections with credentials: {each:.0f} KB each")
        assert each < KEPT_ALIVE_KB
        serves(server)


def test_connections_that_begin_and_never_go_on_keep_nobody_out(tmp_path: Path) -> None:
    with victim(tmp_path) as server:
        opened: list[socket.socket] = []
        for number in range(3000):
            with contextlib.suppress(OSError):
                plain = socket.create_connection(server.address, 10)
                opened.append(plain)
                if number % 3 == 1:
                    plain.sendall(b"\x16\x03\x01")
                elif number % 3 == 2:
                    plain.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            if number % 500 == 0:
                serves(server)
        serves(server)
        assert len(b"".join(server.log)) < 10_000
        close_all(opened)


def test_requests_that_never_end_keep_nobody_out(tmp_path: Path) -> None:
    with victim(tmp_path) as server:
        opened: list[ssl.SSLSocket] = []
        for number in range(1500):
            with contextlib.suppress(OSError):
                connection = server.connect()
                connection.sendall(b"GET /api/v1/services HTTP/1.1\r\nHost: a\r\nX-Slow: ")
                opened.append(connection)
            if number % 500 == 0:
                serves(server)
        serves(server)
        close_all([*opened])


LARGE = 30
UNREAD = 100


def unread(server: Victim, query: str, accept: str) -> float:
    """MB that the server takes for 100 connections that ask for this and read nothing."""
    before = server.megabytes
    opened: list[ssl.SSLSocket] = []
    for _ in range(UNREAD):
        connection = server.connect()
        connection.sendall(
            f"GET /api/v1/configmaps{query} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {server.token}\r\n"
            f"Accept: {accept}\r\n\r\n".encode()
        )
        opened.append(connection)
    most = 0.0
    for _ in range(20):
        serves(server)
        most = max(most, server.megabytes)
    close_all([*opened])
    return most - before


@contextmanager
def large_objects(directory: Path) -> Iterator[Victim]:
    """A server with 30 objects of a megabyte, each of which has been changed."""
    with victim(directory) as server:
        for number in range(LARGE):
            body = b'{"metadata":{"name":"big-%d"},"data":{"x":"%b"}}' % (number, b"x" * 10**6)
            status, _ = server.ask("POST", "/api/v1/namespaces/default/configmaps", body)
            assert status == 201
            status, _ = server.ask(
                "PATCH",
                f"/api/v1/namespaces/default/configmaps/big-{number}",
                b'{"metadata":{"labels":{"a":"b"}}}',
                "application/merge-patch+json",
            )
            assert status == 200
        yield server


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("query", "accept", "most"),
    [
        pytest.param("", "*/*", UNREAD_MB, id="a list"),
        pytest.param("?includeObject=Object", TABLE, UNREAD_MADE_MB, id="a table of whole objects"),
        pytest.param("?watch=1", "*/*", UNREAD_MB, id="a watch of what is there"),
        pytest.param("?watch=1&resourceVersion=1", "*/*", UNREAD_MB, id="a watch of what was changed"),
        pytest.param("?watch=1&resourceVersion=1&includeObject=Object", TABLE, UNREAD_MADE_MB, id="a watch of a table"),
    ],
)
def test_output_that_a_client_does_not_read_is_not_kept(tmp_path: Path, query: str, accept: str, most: float) -> None:
    """What a reader can do: ask for everything, again and again, and read nothing."""
    with large_objects(tmp_path) as server:
        taken = unread(server, query, accept)
        print(f"100 connections that ask for {query or 'a list'} of 30 MB and read nothing: {taken:.0f} MB more")
        assert taken < most
