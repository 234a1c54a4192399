"""One request to one server: the errors for its failures, and the bounds of its answer."""

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import aiohttp
from yarl import URL

from nodeagent.proxy.source.client.api_errors import MalformedAnswerError, ServerUnreachableError
from nodeagent.proxy.source.client.proxy import without_password
from nodeagent.proxy.source.client.server_choice import Server

KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""Seconds, seconds, probes: a peer that vanished silently is noticed after half a minute, not at a watch's end."""

REFUSAL_LIMIT_BYTES = 64 << 10
"""The limit of an answer with an error status; more is cut off."""


def url_of(server: Server, path: str, parameters: Iterable[tuple[str, str]] = ()) -> URL:
    """Returns the URL of a request."""
    return URL(server.url + path).with_query(list(parameters))


@contextmanager
def as_server_unreachable(server: Server) -> Iterator[None]:
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise ServerUnreachableError(f"{shown(server)}: no answer in time", sent=False) from error
    except aiohttp.ClientConnectorError as error:
        raise ServerUnreachableError(f"{shown(server)}: {_reason(error)}", sent=False) from error
    except TimeoutError as error:
        raise ServerUnreachableError(f"{shown(server)}: no answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a name that no host can have
        raise ServerUnreachableError(f"{shown(server)}: {_reason(error)}") from error


def sent_once(server: Server) -> aiohttp.ClientMiddlewareType:
    """For writes: aiohttp would send a PUT or DELETE again when the connection breaks, and hide that it was sent before."""

    async def send(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        with as_server_unreachable(server):  # aiohttp does not catch errors that are not its own
            return await handler(request)

    return send


def shown(server: Server) -> str:
    return f"{server.url} through {without_password(server.proxy)}" if server.proxy else server.url


async def start_of_body(response: aiohttp.ClientResponse) -> bytes:
    start = b""
    async for piece in response.content.iter_any():
        start += piece
        if len(start) > REFUSAL_LIMIT_BYTES:
            response.close()
            return start[:REFUSAL_LIMIT_BYTES]
    return start


def require_uncompressed(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    """Returns the answer unchanged. Raises MalformedAnswerError if it is compressed: it was not requested so, and may be a thousand
    times longer than it seems."""
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.lower() == "identity":
        return response
    response.close()
    raise MalformedAnswerError(f"an answer compressed with {coding!r:.40}, which was not asked for")


def _reason(error: Exception) -> str:
    """Returns the system's error text, equal each time: aiohttp's text contains the address of an object."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionError) and cause.errno is not None:
        return os.strerror(cause.errno)
    if isinstance(cause, socket.gaierror):
        return cause.strerror or str(cause)
    return str(cause) or type(cause).__name__


def detect_a_dead_peer(response: aiohttp.ClientResponse) -> None:
    transport = response.connection.transport if response.connection is not None else None
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
