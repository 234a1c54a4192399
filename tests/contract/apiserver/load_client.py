"""A program that puts load on a server and costs little itself: sockets and epoll, no event loop, no HTTP library.

    load_client.py KUBECONFIG SERVER_PID create services|endpointslices COUNT CONNECTIONS
    load_client.py KUBECONFIG SERVER_PID watch WATCHES ROUNDS

`create` prints a JSON list with an entry for every twentieth part of the objects: `seconds`, `client_cpu`, `server_cpu`.

`watch` opens watches of services, lets one service change, round by round, and prints a list of rounds: `seconds`, from
before the change was sent until the last watch had it decrypted, and `client_cpu`, `server_cpu` meanwhile. Server CPU is that
of its main thread.
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

DEADLINE_SECONDS = 60.0
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
END_OF_EVENT = b"}\n\r\n"
"""The end of a frame and of the chunk it comes in."""


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
        plain = socket.create_connection((self._address.hostname, self._address.port), DEADLINE_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return plain
        return self._context.wrap_socket(plain, server_hostname=self._address.hostname)

    def request(self, method: str, path: str, body: bytes = b"", media_type: str = "application/json") -> bytes:
        head = [f"{method} {path} HTTP/1.1", f"Host: {self._address.netloc}", f"Authorization: Bearer {self._token}"]
        if body:
            head += [f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
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


class Meter:
    """What a stretch of time cost."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.restart()

    def restart(self) -> None:
        self._begun, self._client, self._server = time.monotonic(), time.process_time(), self._server_cpu()

    def read(self) -> dict[str, float]:
        return {
            "seconds": time.monotonic() - self._begun,
            "client_cpu": time.process_time() - self._client,
            "server_cpu": self._server_cpu() - self._server,
        }

    def _server_cpu(self) -> float:
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[0]) / 1e9


def service(number: int) -> tuple[str, Any]:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return SERVICES, {"metadata": {"name": f"s{number}"}, "spec": {"ports": ports}}


def endpoint_slice(number: int) -> tuple[str, Any]:
    endpoints = [
        {
            "addresses": [f"10.{number % 200 + 1}.{number // 200}.{n + 1}"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": f"node-{n}",
        }
        for n in range(10)
    ]
    meta = {"name": f"s{number}-x", "labels": {"kubernetes.io/service-name": f"s{number}"}}
    ports = [{"name": "http", "port": 80}]
    return SLICES, {"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}


KINDS = {"services": service, "endpointslices": endpoint_slice}


def create(server: Server, meter: Meter, kind: str, count: int, connections: int) -> list[dict[str, float]]:
    """Each connection sends its next object when the last one was answered."""
    poll = select.epoll()
    posting: dict[int, socket.socket] = {}
    for _ in range(connections):
        connection = server.connect()
        posting[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    numbers = iter(range(count))

    def send_next(connection: socket.socket) -> None:
        number = next(numbers, None)
        if number is not None:
            path, body = KINDS[kind](number)
            connection.sendall(server.request("POST", path, json.dumps(body).encode()))

    meter.restart()
    for connection in posting.values():
        send_next(connection)
    found: list[dict[str, float]] = []
    done = 0
    while done < count:
        for number, _ in poll.poll(DEADLINE_SECONDS):
            answer = whole_answer(posting[number])
            if not answer.startswith(b"HTTP/1.1 201 "):
                raise ValueError(answer.decode())
            done += 1
            if done % (count // 20) == 0:
                found.append(meter.read())
                meter.restart()
            send_next(posting[number])
    return found


def whole_answer(connection: socket.socket) -> bytes:
    answer = received(connection, b"\r\n\r\n")
    head, end, _ = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(answer) < len(head) + len(end) + length:
        answer += connection.recv(65536)
    return answer


def watch(server: Server, meter: Meter, watches: int, count: int) -> list[dict[str, float]]:
    writer = server.connect()
    writer.sendall(server.request("GET", f"{SERVICES}?limit=1"))
    listed = whole_answer(writer)
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
        meter.restart()
        one_round(server, writer, poll, watching, f"{number}-{time.time_ns()}")
        found.append(meter.read())
        whole_answer(writer)
    return found


def one_round(
    server: Server, writer: socket.socket, poll: select.epoll, watching: dict[int, socket.socket], label: str
) -> None:
    """Changes a service and returns when every watch has received it."""
    change = json.dumps({"metadata": {"labels": {"round": label}}}).encode()
    waiting = dict.fromkeys(watching, b"")
    ends = time.monotonic() + DEADLINE_SECONDS
    writer.sendall(server.request("PATCH", f"{SERVICES}/kubernetes", change, "application/merge-patch+json"))
    while waiting and time.monotonic() < ends:
        for number, _ in poll.poll(1.0):
            try:
                waiting[number] += watching[number].recv(65536)
            except ssl.SSLWantReadError:
                continue
            if waiting[number].endswith(END_OF_EVENT):
                del waiting[number]
    if waiting:
        raise TimeoutError(f"{len(waiting)} of {len(watching)} watches received nothing")


if __name__ == "__main__":
    where, process, verb, *rest = sys.argv[1:]
    to = Server(yaml.safe_load(Path(where).read_text()))
    gauge = Meter(int(process))
    if verb == "create":
        print(json.dumps(create(to, gauge, rest[0], int(rest[1]), int(rest[2]))))
    else:
        print(json.dumps(watch(to, gauge, int(rest[0]), int(rest[1]))))
