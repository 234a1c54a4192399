"""A program: opens many watches of services over TLS, lets one service change, and tells when each watch had it.

    watchers.py KUBECONFIG SERVER_PID WATCHES ROUNDS

Prints one JSON list of rounds: `seconds`, from before the change was sent until the last watch had it decrypted;
`client_cpu` and `server_cpu`, CPU seconds of this process and of the server's main thread meanwhile. It looks at sockets with
epoll and no event loop, so that little of what is measured is its own.
"""

import base64
import json
import select
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

DEADLINE_S = 30.0
SERVICES = "/api/v1/namespaces/default/services"
END_OF_EVENT = b"}\n"


class Server:
    """Where to connect, and as whom."""

    def __init__(self, kubeconfig: Any) -> None:
        cluster = kubeconfig["clusters"][0]["cluster"]
        self._address = urlsplit(cluster["server"])
        self._context: ssl.SSLContext | None = None
        authority = cluster.get("certificate-authority-data")
        if authority:
            self._context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        self._token = kubeconfig["users"][0]["user"].get("token", "")

    def connect(self) -> socket.socket:
        plain = socket.create_connection((self._address.hostname, self._address.port), DEADLINE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return plain
        return self._context.wrap_socket(plain, server_hostname=self._address.hostname)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = [f"{method} {path} HTTP/1.1", f"Host: {self._address.netloc}", f"Authorization: Bearer {self._token}"]
        if body:
            head += ["Content-Type: application/merge-patch+json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*head, "", ""]).encode() + body


def received(connection: socket.socket, end: bytes) -> bytes:
    """What arrives on a blocking connection until `end` is seen."""
    found = b""
    while end not in found:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError(f"ended after {found!r}")
        found += part
    return found


def rounds(server: Server, pid: int, watches: int, count: int) -> list[dict[str, float]]:
    writer = server.connect()
    writer.sendall(server.request("GET", f"{SERVICES}?limit=1"))
    listed = received(writer, b"]}\n")
    revision = json.loads(listed.partition(b"\r\n\r\n")[2])["metadata"]["resourceVersion"]
    poll = select.epoll()
    watching: dict[int, socket.socket] = {}
    path = f"{SERVICES}?watch=1&resourceVersion={revision}&timeoutSeconds=300"
    for _ in range(watches):
        connection = server.connect()
        connection.sendall(server.request("GET", path))
        received(connection, b"\r\n\r\n")
        connection.setblocking(False)
        poll.register(connection, select.EPOLLIN)
        watching[connection.fileno()] = connection
    found = []
    for number in range(count):
        before = main_thread_cpu(pid)
        found.append(one_round(server, writer, poll, watching, f"{number}-{time.time_ns()}"))
        found[-1]["server_cpu"] = main_thread_cpu(pid) - before
    return found


def main_thread_cpu(pid: int) -> float:
    """Seconds, exact to the last time the thread gave the processor away."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def one_round(
    server: Server, writer: socket.socket, poll: select.epoll, watching: dict[int, socket.socket], label: str
) -> dict[str, float]:
    change = json.dumps({"metadata": {"labels": {"round": label}}}).encode()
    waiting = dict.fromkeys(watching, b"")
    spent, begun = time.process_time(), time.monotonic()
    writer.sendall(server.request("PATCH", f"{SERVICES}/kubernetes", change))
    while waiting and time.monotonic() - begun < DEADLINE_S:
        for number, _ in poll.poll(1.0):
            try:
                waiting[number] += watching[number].recv(65536)
            except ssl.SSLWantReadError:
                continue
            if END_OF_EVENT in waiting[number]:
                del waiting[number]
    took, spent = time.monotonic() - begun, time.process_time() - spent
    if waiting:
        raise TimeoutError(f"{len(waiting)} of {len(watching)} watches were told nothing")
    received(writer, label.encode())
    return {"seconds": took, "client_cpu": spent}


if __name__ == "__main__":
    configuration = yaml.safe_load(Path(sys.argv[1]).read_text())
    print(json.dumps(rounds(Server(configuration), *map(int, sys.argv[2:5]))))
