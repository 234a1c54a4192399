"""Actors that also speak SCTP where the kernel does not: its INIT and INIT ACK over a raw socket."""

import random
import socket
import time

from nodeagent.lab.net import actor
from nodeagent.lab.net.actor_messages import Dial
from nodeagent.lab.net.dial import Conversation, Dialer
from nodeagent.lab.net.echo_servers import Server, echo_text
from nodeagent.model.addresses import Protocol, family_of
from tests.harness.worlds.sctp import INIT, INIT_ACK, Chunk, decode, encode

ACTOR = __name__
"""The module that a fork server must have imported for members."""


def kernel_has_sctp() -> bool:
    """Returns whether SCTP sockets can be made (CONFIG_IP_SCTP)."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, Protocol.SCTP).close()
    except OSError:
        return False
    return True


class RawSctpConversation:
    """Sends an INIT from one source port; each further question is the same INIT. ICMP errors arrive as with UDP."""

    def __init__(self, dial: Dial, dialer: Dialer) -> None:
        self._port = dial.port
        self._source_port = dial.source_port or dialer.take()
        self._tag = random.randint(1, 0xFFFFFFFF)
        self._socket = socket.socket(family_of(dial.address).socket_family, socket.SOCK_RAW, Protocol.SCTP)
        try:
            self._socket.settimeout(dial.timeout)
            for option, value in ((socket.SO_MARK, dial.mark), (socket.SO_PRIORITY, dial.priority)):
                if value is not None:
                    self._socket.setsockopt(socket.SOL_SOCKET, option, value)
            if dial.source_address:
                self._socket.bind((dial.source_address, 0))
            self._socket.connect((dial.address, 0))
        except OSError:
            self._socket.close()
            raise

    def ask(self, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        self._socket.send(encode(Chunk(self._source_port, self._port, 0, INIT, self._tag)))
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            packet = self._socket.recv(65535)
            if self._socket.family == socket.AF_INET:
                packet = packet[(packet[0] & 15) * 4 :]
            chunk = decode(packet)
            if chunk and chunk.kind == INIT_ACK and chunk.verification_tag == self._tag:
                return chunk.cookie
        raise TimeoutError

    def close(self) -> None:
        self._socket.close()


class SctpDialer(Dialer):
    """Opens raw conversations where the kernel has no SCTP."""

    def open(self, dial: Dial) -> Conversation:
        if dial.protocol is Protocol.SCTP and not kernel_has_sctp():
            return RawSctpConversation(dial, self)
        return super().open(dial)


class SctpServer(Server):
    """Answers each INIT with an INIT ACK where the kernel has no SCTP."""

    def _listen(self, protocol: Protocol, address: str) -> None:
        if protocol is not Protocol.SCTP or kernel_has_sctp():
            super()._listen(protocol, address)
            return
        listener = socket.socket(family_of(address).socket_family, socket.SOCK_RAW, protocol)
        self.watch(listener, self._answer_init)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, 0))

    def _answer_init(self, listener: socket.socket) -> None:
        packet, peer = listener.recvfrom(65535)
        if listener.family == socket.AF_INET:
            packet = packet[(packet[0] & 15) * 4 :]
        init = decode(packet)
        if init is None or init.kind != INIT or init.destination_port != self.port:
            return
        seen = (peer[0], init.source_port)
        cookie = echo_text(self.name, seen, (listener.getsockname()[0], self.port))
        reply = Chunk(self.port, init.source_port, init.initiate_tag, INIT_ACK, 1, cookie)
        listener.sendto(encode(reply), (peer[0], 0))


class SctpActor(actor.Actor):
    dialer, server = SctpDialer, SctpServer


def act(namespace: str, descriptor: int) -> None:
    """Runs the actor in the namespace until the socket is closed; then exits the process."""
    actor.act(namespace, descriptor, SctpActor)
