"""Servers of an actor: each answer names its server, and the addresses that the server saw.

A TCP connection may carry any number of questions, of any bytes; an HTTP GET gets an HTTP response, once.
"""

import os
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from nodeagent.lab.net.actor_messages import Serve
from nodeagent.model.addresses import Protocol, family_of


def echo_text(name: str, peer: tuple[str, int], local: tuple[str, int]) -> bytes:
    """Returns an answer's bytes: name, the client's address and port, the server's, separated by spaces."""
    return f"{name} {peer[0]} {peer[1]} {local[0]} {local[1]}\n".encode()


def http_answer(text: bytes) -> bytes:
    """Returns such an answer as an HTTP response."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        len(text),
        text,
    )


class Server:
    """One port on some addresses, served by a thread until `stop`. The thread sleeps while no client asks: a lab has a hundred of
    them. Raises OSError if it cannot listen."""

    def __init__(self, serve: Serve) -> None:
        self.name = serve.name
        self.port = serve.port
        self._selector = selectors.DefaultSelector()
        self._stopping = os.eventfd(0)
        self._selector.register(self._stopping, selectors.EVENT_READ)
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
        os.eventfd_write(self._stopping, 1)
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for opened in self._open:
            opened.close()
        self._selector.close()
        os.close(self._stopping)

    def _listen(self, protocol: Protocol, address: str) -> None:
        family = family_of(address).socket_family
        datagrams = protocol is Protocol.UDP
        listener = socket.socket(family, socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM, protocol)
        self.watch(listener, self._answer_datagram if datagrams else self._accept)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, self.port))
        if not datagrams:
            listener.listen(4096)

    def watch(self, opened: socket.socket, answer: Callable[[socket.socket], None]) -> None:
        """Calls `answer` whenever there is something to read; closes the socket at the end."""
        self._open.add(opened)
        opened.setblocking(False)
        self._selector.register(opened, selectors.EVENT_READ, answer)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._stopping:
                    return
                # An answer that cannot be sent affects only its client.
                with suppress(OSError):
                    key.data(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self.watch(connection, self._answer_stream)

    def _answer_stream(self, connection: socket.socket) -> None:
        try:
            question = connection.recv(4096)
            text = echo_text(self.name, connection.getpeername()[:2], connection.getsockname()[:2])
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
        listener.sendto(echo_text(self.name, peer[:2], listener.getsockname()[:2]), peer)
