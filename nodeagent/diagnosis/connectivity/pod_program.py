"""The program of the test pods: `serve PORT` answers, `ask` sends the requests that it reads, `wait` only waits.

It reaches the pods in a ConfigMap and needs only Python 3.10 or later, so any image with Python works. The command
itself runs `answers_of` for the machine that it is on.

A server answers TCP and UDP alike: its own name, the client's address, and what the client sent. `ask` reads one line
of JSON from standard input and writes one to standard output.
"""

import asyncio
import errno
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any, cast

LENGTH = struct.Struct("!I")
LARGEST_DATAGRAM = 65535
LARGEST_PAYLOAD = 16 << 20
SENDS = 3
"""How often a datagram is sent before it counts as lost."""
IDLE_SECONDS = 30.0
WORKERS = 4
"""Requests in parallel: all pods send at once, and a server is one process."""


class DatagramEcho(asyncio.DatagramProtocol):
    """Answers each UDP datagram."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: "tuple[Any, ...]") -> None:
        self._transport.sendto(echo_line(addr[0]) + data, addr)


async def stream_answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves one TCP connection: reads a length and as many bytes, writes a line with the addresses and these bytes."""
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):  # the client disconnected
        await asyncio.wait_for(conversation(reader, writer), IDLE_SECONDS)
    writer.close()


async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    payload = await reader.readexactly(min(size, LARGEST_PAYLOAD))
    writer.write(echo_line(writer.get_extra_info("peername")[0]) + payload)
    await writer.drain()


def echo_line(peer: str) -> bytes:
    """Returns a line with the server's name, and the client's address as the server sees it."""
    return f"{os.environ.get('POD_NAME', '')} {peer}\n".encode()


async def serve(port: int) -> int:
    """Listens in each available family; returns their number. Raises OSError if the port is in use."""
    loop = asyncio.get_running_loop()
    families = 0
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - a pod's own
        try:
            datagrams = socket.socket(family, socket.SOCK_DGRAM)
            if family == socket.AF_INET6:
                datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            datagrams.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue
            raise
        datagrams.setblocking(False)
        await loop.create_datagram_endpoint(DatagramEcho, sock=datagrams)
        await asyncio.start_server(stream_answered, address, port, backlog=128)
        families += 1
    return families


async def serve_for_ever(port: int) -> None:
    if not await serve(port):
        sys.exit(f"no family can listen at port {port}")
    await asyncio.Event().wait()


def received(connection: socket.socket, size: int) -> bytes:
    """Returns exactly `size` bytes. Raises OSError if fewer arrive."""
    pieces = []
    while size:
        piece = connection.recv(min(size, 1 << 16))
        if not piece:
            raise ConnectionResetError("it was closed")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def answers_of(requests: "list[dict[str, Any]]", seconds: float) -> "list[dict[str, Any]]":
    """Returns the result of each request, with several in parallel; an error for those that exceed `seconds`."""
    late = {"error": f"no answer in {seconds:g} s"}
    results: list[dict[str, Any]] = [late] * len(requests)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(requests)):
        waiting.put(number)

    def work() -> None:
        with suppress(queue.Empty):
            while True:
                number = waiting.get_nowait()
                results[number] = answer(requests[number])
                done.put(number)

    for _ in range(min(WORKERS, len(requests))):
        threading.Thread(target=work, name="requests", daemon=True).start()
    end = time.monotonic() + seconds
    with suppress(queue.Empty):
        for _ in requests:
            done.get(timeout=max(0.0, end - time.monotonic()))
    return list(results)


def answer(request: "dict[str, Any]") -> "dict[str, Any]":
    """Returns the result of one request; `error` is the reason if it failed."""
    try:
        if request["kind"] == "resolve":
            return {"addresses": sorted({place[0] for place in places(request)})}
        if request["kind"] == "query":
            return {"message": query(request).hex()}
    except OSError as error:
        return {"error": reason(error, request)}
    return conversations(request)


def conversations(request: "dict[str, Any]") -> "dict[str, Any]":
    """Returns the results of `count` conversations, one after the other, until one fails."""
    talk = datagram if request["kind"] == "udp" else stream
    answers = []
    for _ in range(request.get("count", 1)):
        try:
            family, place = chosen(request)
            answers.append(talk(family, place, os.urandom(request.get("size", 16)), request["seconds"]))
        except OSError as error:
            answers.append({"error": reason(error, request)})
            break
    return {"answers": answers}


def places(request: "dict[str, Any]") -> "list[tuple[Any, ...]]":
    """Returns the addresses of the host in the requested family. Raises OSError."""
    family = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}[request["family"]]
    found = socket.getaddrinfo(request["host"], request.get("port"), family, socket.SOCK_STREAM)
    return [place for _, _, _, _, place in found]


def chosen(request: "dict[str, Any]") -> "tuple[int, tuple[Any, ...]]":
    """Returns family and first address. Raises OSError."""
    place = places(request)[0]
    return (socket.AF_INET6 if ":" in place[0] else socket.AF_INET), place


def stream(family: int, place: "tuple[Any, ...]", payload: bytes, seconds: float) -> "dict[str, Any]":
    """Does one TCP conversation; returns its result. Raises OSError."""
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(seconds)
        client.connect(place)
        client.sendall(LENGTH.pack(len(payload)) + payload)
        line = b""
        while not line.endswith(b"\n"):
            line += received(client, 1)
        echoed = received(client, len(payload))
        return exchanged(line, client, same=echoed == payload)


def datagram(family: int, place: "tuple[Any, ...]", payload: bytes, seconds: float) -> "dict[str, Any]":
    """Sends one datagram and returns the result; repeats it, because it may be lost. Raises OSError."""
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(seconds / SENDS)
        client.connect(place)
        for attempt in range(SENDS):
            with suppress(PermissionError):  # rejected on this machine; the next call raises the reason
                client.send(payload)
            try:
                line, _, echoed = client.recv(LARGEST_DATAGRAM).partition(b"\n")
            except TimeoutError:
                if attempt == SENDS - 1:
                    raise
            else:
                return exchanged(line, client, same=echoed == payload)
        raise TimeoutError


def exchanged(line: bytes, client: socket.socket, *, same: bool) -> "dict[str, Any]":
    server, _, peer = line.decode().strip().partition(" ")
    return {
        "server": server,
        "peer": peer,
        "own": client.getsockname()[0],
        "error": "" if same else "what came back is not what was sent",
    }


def query(request: "dict[str, Any]") -> bytes:
    """Returns the answer of a DNS server to a message, by UDP. Raises OSError."""
    family, place = chosen(request)
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(request["seconds"])
        client.connect(place)
        client.send(bytes.fromhex(request["message"]))
        return client.recv(LARGEST_DATAGRAM)


def reason(error: OSError, request: "dict[str, Any]") -> str:
    """Returns why there is no answer; one word if possible."""
    if isinstance(error, socket.gaierror):
        return f"the name {request['host']} was not resolved: {error.strerror}"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, TimeoutError):
        return f"no answer in {request['seconds']:g} s"
    return f"{error.strerror or error}"


def main(words: "list[str]") -> None:
    # The first process of a container needs a handler to end by SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if words[:1] == ["ask"]:
        # Bounds a lookup if no server answers; the pod's other resolver settings stay.
        os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:2")
        asked = json.loads(sys.stdin.readline())
        print(json.dumps(answers_of(asked["requests"], asked["seconds"])), flush=True)  # noqa: T201
        os._exit(0)  # a lookup may still be running
    if words[:1] == ["serve"]:
        asyncio.run(serve_for_ever(int(words[1])))
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
