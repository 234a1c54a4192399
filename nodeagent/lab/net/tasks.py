"""Background tasks of an actor, until they are stopped: held conversations, load, recording of packets."""

import socket
import struct
import threading
import time
from collections import Counter

from msgspec.structs import replace

from nodeagent.lab.net import actor_messages as messages
from nodeagent.lab.net.dial import Conversation, SourcePorts, ask, begin, continue_asking
from nodeagent.lab.net.echo_servers import Server
from nodeagent.lab.net.latencies import to_two_digits
from nodeagent.model.addresses import unpack_address

KEPT_FAILURES = 100
ETH_P_ALL = 3
ETH_P_IP = 0x0800
ETH_P_IPV6 = 0x86DD
IPV4_HEADER, IPV6_HEADER = 20, 40
"""Bytes of the headers, without options."""
PORT_PROTOCOLS = (6, 17, 132)
TICK = 0.05


class ServeTask:
    """A server as a task."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def stop(self) -> messages.Stopped:
        self._server.stop()
        return messages.Stopped()


class HoldTask:
    """Conversations that stay open."""

    def __init__(self, dial: messages.Dial, count: int, ports: SourcePorts) -> None:
        self._timeout = dial.timeout
        self._conversations: list[Conversation] = []
        self.first: list[messages.Answer] = []
        for _ in range(count):
            conversation, answer = begin(dial, ports)
            self.first.append(answer)
            if conversation:
                self._conversations.append(conversation)

    def exchange(self) -> messages.Answers:
        return messages.Answers(tuple(continue_asking(c, self._timeout) for c in self._conversations))

    def stop(self) -> messages.Stopped:
        for conversation in self._conversations:
            conversation.close()
        return messages.Stopped()


class LoadTask:
    """New conversations without end, counted. A late one is not made up for, so the pace stays the same.

    Workers take turns, so that connections are evenly spaced and continue while some wait for their answers.
    """

    def __init__(self, load: messages.Load, ports: SourcePorts) -> None:
        self._load = load
        self._ports = ports
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._names: Counter[str] = Counter()
        self._failures: Counter[messages.Failure] = Counter()
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._failed: list[messages.Answer] = []
        self._slowest = 0.0
        self._latencies: Counter[int] = Counter()
        self._last_failure = 0.0
        self._open: dict[int, float] = {}
        self._records: list[messages.Record] = []
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(load.workers)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        self._stopping.wait(self._load.delay + number * self._load.interval / self._load.workers)
        while not self._stopping.is_set():
            with self._lock:
                began = self._open[number] = time.monotonic()
            answer = ask(self._load.dial, self._ports)
            with self._lock:
                del self._open[number]
                self._count(answer)
            self._stopping.wait(max(0.0, began + self._load.interval - time.monotonic()))

    def _count(self, answer: messages.Answer) -> None:
        if self._load.record:
            self._records.append(messages.Record(answer.started, answer.seconds, answer.name, answer.failure))
        if answer.failure:
            self._failures[answer.failure] += 1
            self._last_failure = max(self._last_failure, answer.started)
            if len(self._failed) < KEPT_FAILURES:
                self._failed.append(answer)
            return
        self._names[answer.name] += 1
        self._first.setdefault(answer.name, answer.started)
        self._last[answer.name] = max(answer.started, self._last.get(answer.name, 0.0))
        self._slowest = max(self._slowest, answer.seconds)
        self._latencies[to_two_digits(answer.seconds)] += 1

    def report(self) -> messages.LoadReport:
        with self._lock:
            return messages.LoadReport(
                dict(self._names),
                dict(self._failures),
                dict(self._first),
                dict(self._last),
                tuple(self._failed),
                self._slowest,
                dict(self._latencies),
                self._last_failure,
                min(self._open.values(), default=time.monotonic()),
            )

    def stop(self) -> messages.LoadReport:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        return replace(self.report(), records=tuple(self._records))


class SniffTask:
    """Packets as the kernel shows them to AF_PACKET: incoming ones before netfilter, outgoing ones after it."""

    def __init__(self, sniff: messages.Sniff) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        if sniff.interface:
            self._socket.bind((sniff.interface, ETH_P_ALL))
        self._socket.settimeout(TICK)
        self._stopping = threading.Event()
        self._packets: list[messages.Packet] = []
        self._thread = threading.Thread(target=self._run, daemon=True, name="sniff")
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                data, origin = self._socket.recvfrom(65535)
            except TimeoutError:
                if self._stopping.is_set():
                    return
                continue
            packet = packet_of(data, origin[0], origin[1], outgoing=origin[2] == socket.PACKET_OUTGOING)
            if packet:
                self._packets.append(packet)

    def report(self) -> messages.Packets:
        return messages.Packets(tuple(self._packets))

    def stop(self) -> messages.Packets:
        self._stopping.set()
        self._thread.join()
        self._socket.close()
        return self.report()


def packet_of(data: bytes, interface: str, ethertype: int, *, outgoing: bool) -> messages.Packet | None:
    """Returns the fields of an IP header (without extension headers); None for other traffic."""
    if ethertype == ETH_P_IP and len(data) >= IPV4_HEADER:
        start, protocol = (data[0] & 15) * 4, data[9]
        source, destination = data[12:16], data[16:20]
    elif ethertype == ETH_P_IPV6 and len(data) >= IPV6_HEADER:
        start, protocol = IPV6_HEADER, data[6]
        source, destination = data[8:24], data[24:40]
    else:
        return None
    ports = (0, 0)
    if protocol in PORT_PROTOCOLS and len(data) >= start + 4:
        ports = struct.unpack_from("!HH", data, start)
    return messages.Packet(
        interface, outgoing, unpack_address(source), unpack_address(destination), protocol, *ports, length=len(data)
    )


Task = ServeTask | HoldTask | LoadTask | SniffTask
