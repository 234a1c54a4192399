"""A watcher that does not read costs others nothing, and the machine little: neither the server nor the kernel keeps what it did not receive."""

import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.apiserver.api import sending
from tests.contract.apiserver.conftest import DEADLINE_SECONDS, Api

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
COUNT = 60
SIZE = 40_000
MOST_WAITING_BYTES = 600_000
"""In the kernel. Unbounded, it would be all that there is, 2.4 MB."""
PATIENCE_SECONDS = 600.0


def waiting(port: int) -> int:
    """Bytes of the connection to that port of 127.0.0.1 that were sent and not received (proc_net_tcp(5))."""
    lines = Path("/proc/net/tcp").read_text().splitlines()
    found = [line.split() for line in lines if f" 0100007F:{port:04X} 01 " in line]
    return sum(int(fields[4].partition(":")[0], 16) for fields in found)


def watching(api: Api) -> socket.socket:
    """A watch that was asked for. What is not read, the kernel takes some 64 KiB of at this end."""
    revision = api.get(CONFIGMAPS)["metadata"]["resourceVersion"]
    connection = api.connect(PATIENCE_SECONDS)
    connection.connect()
    assert connection.sock is not None
    path = f"{CONFIGMAPS}?watch=1&resourceVersion={revision}"
    connection.request("GET", path, None, {"Authorization": f"Bearer {api.token}"})
    return connection.sock


def names(connection: socket.socket) -> list[str]:
    """Of all objects of the test, once they were sent. The namespace's own ConfigMap comes a moment after the server's start."""
    received = b""
    while True:
        piece = connection.recv(1 << 16)
        assert piece, received[-200:]
        received += piece
        text = re.sub(rb"\r\n[0-9A-Fa-f]+\r\n", b"", received).decode()
        found = re.findall(r'"metadata":\{"name":"(n[0-9]+)"', text)
        if len(found) >= COUNT and text.endswith("}\n\r\n"):
            return found


def test_events_that_a_watcher_does_not_read_are_not_kept(
    start: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_PIECE_SECONDS", PATIENCE_SECONDS)
    api = start(in_memory=True)
    slow, quick = watching(api), watching(api)
    heard: list[str] = []
    reading = threading.Thread(target=lambda: heard.extend(names(quick)))
    reading.start()
    expected = [f"n{number}" for number in range(COUNT)]
    for name in expected:
        created = api.call("POST", CONFIGMAPS, {"metadata": {"name": name}, "data": {"x": "x" * SIZE}})
        assert created.status == 201
    reading.join(PATIENCE_SECONDS)
    assert heard == expected
    ends = time.monotonic() + DEADLINE_SECONDS
    while not waiting(slow.getsockname()[1]):
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert waiting(slow.getsockname()[1]) < MOST_WAITING_BYTES
    assert names(slow) == expected
    for connection in (slow, quick):
        connection.close()
