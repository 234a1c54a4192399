"""Servers of an actor: each answer names its server, and the addresses that the server saw.

A TCP connection may carry any number of questions, of any bytes; an HTTP GET gets an HTTP response, once.
"""

import selectors
import socket
import threading
from contextlib import suppress

from nodeagent.lab.net import sctp
from nodeagent.lab.net.actor_messages import Serve
from nodeagent.model.addresses import Protocol, family_of

TICK = 0.1


def echo_text(name: str, peer: tuple[str, int], local: tuple[str, int]) -> bytes:
    """Returns an answer's bytes: name, the client's address and port, the server's, separated by spaces."""
    return f"{name} {peer[0]} {peer[1]} {local[0]} {local[1]}\n".encode()


def http_answer(text: bytes) -> bytes:
    """Returns such an answer as an HTTP response."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        len(text),
        text,
    )


def kernel_has_sctp() -> bool:
    """Returns whether SCTP sockets can be made (CONFIG_IP_SCTP)."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, Protocol.SCTP).close()
    except OSError:
        return False
    return True


class Server:
    """One port on some addresses, served by a thread until `stop`. Raises OSError if it cannot listen."""

    def __init__(self, serve: Serve) -> None:
        self._name = serve.name
        self._port = serve.port
        self._selector = selectors.DefaultSelector()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        try:
            for address in serve.addresses:
                self._listen(serve.protocol, address)
        except OSError:
            self._close()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"serve {serve.port}")
        self._thread.start()

    def stop(self) -> None:
        """Closes the listeners and every open connection."""
        self._stopping.set()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for opened in self._open:
            opened.close()
        self._selector.close()

    def _listen(self, protocol: Protocol, address: str) -> None:
        family = family_of(address).socket_family
        streaming = protocol is Protocol.TCP or (protocol is Protocol.SCTP and kernel_has_sctp())
        if streaming:
            listener = socket.socket(family, socket.SOCK_STREAM, protocol)
            answer = self._accept
        elif protocol is Protocol.UDP:
            listener = socket.socket(family, socket.SOCK_DGRAM)
            answer = self._answer_datagram
        else:
            listener = socket.socket(family, socket.SOCK_RAW, protocol)
            answer = self._answer_init
        self._open.add(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and listener.type != socket.SOCK_RAW:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, 0 if answer == self._answer_init else self._port))
        if streaming:
            listener.listen(4096)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, answer)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(TICK):
                # An answer that cannot be sent affects only its client.
                with suppress(OSError):
                    key.data(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        self._open.add(connection)
        self._selector.register(connection, selectors.EVENT_READ, self._answer_stream)

    def _answer_stream(self, connection: socket.socket) -> None:
        try:
            question = connection.recv(4096)
            text = echo_text(self._name, connection.getpeername()[:2], connection.getsockname()[:2])
            if question.startswith(b"GET "):
                connection.send(http_answer(text))  # and close: one question each
            elif question:
                connection.send(text)
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # it ended; ENOTCONN if the reset came before getpeername
        self._selector.unregister(connection)
        self._open.discard(connection)
        connection.close()

    def _answer_datagram(self, listener: socket.socket) -> None:
        _, peer = listener.recvfrom(4096)  # ECONNREFUSED: an ICMP error for an earlier answer, that client is closed
        listener.sendto(echo_text(self._name, peer[:2], listener.getsockname()[:2]), peer)

    def _answer_init(self, listener: socket.socket) -> None:
        packet, peer = listener.recvfrom(65535)
        if listener.family == socket.AF_INET:
            packet = packet[(packet[0] & 15) * 4 :]
        init = sctp.decode(packet)
        if init is None or init.kind != sctp.INIT or init.destination_port != self._port:
            return
        seen = (peer[0], init.source_port)
        cookie = echo_text(self._name, seen, (listener.getsockname()[0], self._port))
        reply = sctp.Chunk(self._port, init.source_port, init.initiate_tag, sctp.INIT_ACK, 1, cookie)
        listener.sendto(sctp.encode(reply), (peer[0], 0))
