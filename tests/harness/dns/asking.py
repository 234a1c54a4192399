"""All recorded queries to a server that runs, and what of the answers is not as recorded."""

import selectors
import socket
import time
from contextlib import suppress
from typing import Any

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.dns.reference import Answer, answers, differences, packet_of

AT_A_TIME = 40
DEADLINE_SECONDS = 60.0
SILENCE_SECONDS = 0.5
"""How long something is listened for that must not come."""
LEVELS = ("spec", "coredns")


def wrong_answers(namespace: str, server: str) -> dict[str, list[str]]:
    """By the id of a recorded query what is not as recorded, asked from a namespace. server: its address; port 53."""
    records = [record for record in answers() if record["level"] in LEVELS]
    by_udp = [record for record in records if record["transport"] == "udp"]
    by_tcp = [record for record in records if record["transport"] == "tcp"]

    def ask() -> dict[str, bytes | None]:
        replies: dict[str, bytes | None] = {}
        for start in range(0, len(by_udp), AT_A_TIME):
            replies |= _by_udp(by_udp[start : start + AT_A_TIME], server)
        return replies | {record["id"]: _by_tcp(record, server) for record in by_tcp}

    replies = inside(namespace, ask)
    assert len(replies) == len(records)
    return {one["id"]: found for one in records if (found := differences(one, replies[one["id"]], aged=True))}


def _by_udp(records: list[Answer], server: str) -> dict[str, bytes | None]:
    replies: dict[str, bytes | None] = {record["id"]: None for record in records}
    awaited = {record["id"] for record in records if "none" not in record["answer"]}
    with selectors.DefaultSelector() as selector:
        for record in records:
            sock = _socket_to(server, socket.SOCK_DGRAM)
            sock.send(packet_of(record["query"], 0x1234))
            selector.register(sock, selectors.EVENT_READ, record["id"])
        end = time.monotonic() + DEADLINE_SECONDS
        quiet = time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < (end if awaited else quiet):
            for key, _ in selector.select(SILENCE_SECONDS / 10):
                sock = _of(key)
                replies[key.data] = sock.recv(65535)
                awaited.discard(key.data)
                selector.unregister(sock)
                sock.close()
            if not awaited and not any("none" in record["answer"] for record in records):
                break
        for key in tuple(selector.get_map().values()):
            _of(key).close()
    return replies


def _of(key: selectors.SelectorKey) -> socket.socket:
    sock: Any = key.fileobj
    assert isinstance(sock, socket.socket)
    return sock


def _by_tcp(record: Answer, server: str) -> bytes | None:
    packet = packet_of(record["query"], 0x1234)
    with _socket_to(server, socket.SOCK_STREAM) as sock, sock.makefile("rb") as file:
        sock.settimeout(DEADLINE_SECONDS)
        sock.sendall(len(packet).to_bytes(2, "big") + packet)
        if "none" in record["answer"]:
            sock.settimeout(SILENCE_SECONDS)
            with suppress(TimeoutError):
                return file.read(1) or None
            return None
        return file.read(int.from_bytes(file.read(2), "big"))


def _socket_to(server: str, kind: socket.SocketKind) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, kind)
    sock.connect((server, 53))
    return sock
