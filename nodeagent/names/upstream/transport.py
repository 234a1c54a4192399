"""Sockets: a fresh one for each try, so that the kernel picks a random port and answers from elsewhere never arrive."""

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator
from typing import Protocol

from nodeagent.names.upstream.upstream_address import Server

LARGEST = 65535
OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors that say nothing of the server."""


class Transport(Protocol):
    """How packets reach a server; both raise OSError."""

    def datagrams(self, server: Server, packet: bytes) -> AsyncGenerator[bytes, None]:
        """Send the packet by UDP; every datagram that comes back from that server, without end."""
        ...

    async def stream(self, server: Server, packet: bytes) -> bytes:
        """Send the packet by TCP; the first message that comes back."""
        ...


class Sockets:
    """Connected sockets: the kernel drops datagrams of any other address or port, and reports refusals."""

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
    """Exactly so many bytes. Raises ConnectionError when the peer ends before."""
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
    """Raises OSError for a zone that is no interface."""
    if ":" not in server.address:
        return server.address, server.port
    address, _, zone = server.address.partition("%")
    return address, server.port, 0, (int(zone) if zone.isdecimal() else socket.if_nametoindex(zone)) if zone else 0
