"""Sockets: a new one for each try, so that the kernel picks a random port and drops answers from other addresses."""

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator
from typing import Protocol

from nodeagent.names.upstream.upstream_address import Server

LARGEST = 65535
LOCAL_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors that are caused by this node, not by the server."""


class Transport(Protocol):
    """Sends packets to a server; both methods raise OSError."""

    def datagrams(self, server: Server, packet: bytes) -> AsyncGenerator[bytes, None]:
        """Sends the packet by UDP; yields every datagram that comes back from that server, without end."""
        ...

    async def stream(self, server: Server, packet: bytes) -> bytes:
        """Sends the packet by TCP; returns the first message that comes back."""
        ...


class Sockets:
    """Connected sockets: the kernel drops datagrams from any other address or port, and reports refusals."""

    async def datagrams(self, server: Server, packet: bytes) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        with socket.socket(_family(server), socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.connect(_socket_address(server))
            await loop.sock_sendall(sock, packet)
            while True:
                yield await loop.sock_recv(sock, LARGEST)

    async def stream(self, server: Server, packet: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.socket(_family(server), socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
            await loop.sock_connect(sock, _socket_address(server))
            await loop.sock_sendall(sock, len(packet).to_bytes(2, "big") + packet)
            size = int.from_bytes(await _receive(sock, 2), "big")
            return await _receive(sock, size)


async def _receive(sock: socket.socket, size: int) -> bytes:
    """Returns exactly `size` bytes. Raises ConnectionError if the peer closes before."""
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    while size:
        part = await loop.sock_recv(sock, size)
        if not part:
            raise ConnectionError("the connection ended within a message")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _family(server: Server) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server.address else socket.AF_INET


def _socket_address(server: Server) -> tuple[str, int] | tuple[str, int, int, int]:
    """Returns the address for the socket module. Raises OSError for a zone that is not an interface."""
    if ":" not in server.address:
        return server.address, server.port
    address, _, zone = server.address.partition("%")
    return address, server.port, 0, (int(zone) if zone.isdecimal() else socket.if_nametoindex(zone)) if zone else 0
