"""Heads of requests that never end: 500 connections with 120 headers of 8 kB each, from eight addresses."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attack.server_process import ROOT, victim

CONNECTIONS = 500
HEADERS = 120
ADDRESSES = 8
GROWTH_MB = 60
KEPT_MB = 25
DEADLINE_SECONDS = 60.0
FILLER = b"X: " + b"y" * 8000 + b"\r\n"


@dataclass
class Target:
    """A process that listens, and how a client connects to it from an address."""

    pid: int
    connect: Callable[[str], socket.socket]

    @property
    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20


@contextmanager
def agent(_: Path) -> Iterator[Target]:
    command = [sys.executable, "-m", "tests.attack.listening_agent"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        def connect(address: str) -> socket.socket:
            return socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS, source_address=(address, 0))

        try:
            yield Target(process.pid, connect)
        finally:
            process.kill()


@contextmanager
def api_server(directory: Path) -> Iterator[Target]:
    with victim(directory) as server:

        def connect(address: str) -> socket.socket:
            plain = socket.create_connection(server.address, DEADLINE_SECONDS, source_address=(address, 0))
            return server.context.wrap_socket(plain, server_hostname=server.address[0])

        yield Target(server.process.pid, connect)


def ask(target: Target) -> None:
    """The control, and that nobody is kept out."""
    with target.connect("127.0.0.1") as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("headers", [HEADERS, 3], ids=["without end", "just below the bound"])
@pytest.mark.parametrize("listener", [agent, api_server])
def test_heads_that_never_end_cost_little_and_it_is_given_back(
    listener: Callable[[Path], contextlib.AbstractContextManager[Target]], headers: int, tmp_path: Path
) -> None:
    with listener(tmp_path) as target:
        for _ in range(20):
            ask(target)
        before = most = target.megabytes
        held: list[socket.socket] = []
        for number in range(CONNECTIONS):
            with contextlib.suppress(OSError, ssl.SSLError):
                connection = target.connect(f"127.0.1.{number % ADDRESSES}")
                held.append(connection)
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
                for _ in range(headers):
                    connection.sendall(FILLER)
            if number % 50 == 0:
                most = max(most, target.megabytes)
                ask(target)
        most = max(most, target.megabytes)
        for connection in held:
            connection.close()
        ends = time.monotonic() + DEADLINE_SECONDS
        while target.megabytes - before > KEPT_MB and time.monotonic() < ends:
            time.sleep(0.2)
        kept = target.megabytes - before
        print(f"{listener.__name__}, {headers} headers: {most - before:.0f} MB more, {kept:.0f} MB kept")
        assert most - before < GROWTH_MB
        assert kept <= KEPT_MB
        ask(target)
