"""One request to one server: the errors for its failures, and the bounds of its answer."""

import asyncio
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import aiohttp
from yarl import URL

from nodeagent.proxy.source.client.api_errors import (
    MalformedAnswerError,
    ServerUnreachableError,
    UnauthorizedError,
    UntrustedServerError,
)
from nodeagent.proxy.source.client.credentials import Credential
from nodeagent.proxy.source.client.expiry import expired
from nodeagent.proxy.source.client.proxy import without_password
from nodeagent.proxy.source.client.server_choice import Server

KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""Seconds, seconds, probes: a peer that vanished silently is noticed after half a minute, not at a watch's end."""

REFUSAL_LIMIT_BYTES = 64 << 10
"""The limit of an answer with an error status; more is cut off."""

_NAME = "use a name of the server that is in its certificate, or tls-server-name in the kubeconfig"
_CURES_OF_CERTIFICATES = {
    9: "it is from the future: set the clock of this node, or of the host that issued it",
    10: "renew it at the server; if it is not yet so late, set the clock of this node",
    62: _NAME,
    64: _NAME,
}
"""What to do, by OpenSSL's number of the fault (X509_V_ERR_…, x509_vfy.h)."""


def url_of(server: Server, path: str, parameters: Iterable[tuple[str, str]] = ()) -> URL:
    """Returns the URL of a request."""
    return URL(server.url + path).with_query(list(parameters))


@contextmanager
def as_server_unreachable(server: Server) -> Iterator[None]:
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise ServerUnreachableError(f"{server_text(server)}: no answer in time", sent=False) from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise _untrusted(server, error.certificate_error) from error
    except aiohttp.ClientConnectorError as error:
        raise ServerUnreachableError(f"{server_text(server)}: {_reason(error)}", sent=False) from error
    except TimeoutError as error:
        raise ServerUnreachableError(f"{server_text(server)}: no answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a name that no host can have
        raise ServerUnreachableError(f"{server_text(server)}: {_reason(error)}") from error


@contextmanager
def naming_what_expired(credential: Credential) -> Iterator[None]:
    """Adds what of the credential has expired to the error of a server that refuses it: the server does not say so."""
    try:
        yield
    except (UnauthorizedError, ServerUnreachableError) as error:
        if why := expired(credential, datetime.now(UTC)):
            error.args = (f"{error}; {why}",)
        raise


def send_once(server: Server) -> aiohttp.ClientMiddlewareType:
    """For writes: aiohttp would send a PUT or DELETE again when the connection breaks, and hide that it was sent before."""

    async def send(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        with as_server_unreachable(server):  # aiohttp does not catch errors that are not its own
            return await handler(request)

    return send


def server_text(server: Server) -> str:
    """Returns the URL of the server, with the proxy that leads to it, as text for users."""
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


def _untrusted(server: Server, error: Exception) -> UntrustedServerError:
    code = getattr(error, "verify_code", 0)
    why = (getattr(error, "verify_message", "") or str(error)).rstrip(".")
    return UntrustedServerError(
        f"{server_text(server)}: its certificate is not accepted: {why}",
        _CURES_OF_CERTIFICATES.get(
            code, "give the agent the authority that signed it: certificate-authority in the kubeconfig"
        ),
    )


def _reason(error: Exception) -> str:
    """Returns the system's error text, equal each time: aiohttp's text contains the address of an object."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionError) and cause.errno is not None:
        return os.strerror(cause.errno)
    if isinstance(cause, socket.gaierror):
        return cause.strerror or str(cause)
    return str(cause) or type(cause).__name__


async def leave_unread(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Waits while the kernel collects what the server sends: the event loop is not woken for it."""
    transport = response.connection.transport if response.connection is not None else None
    if transport is None:
        return
    transport.pause_reading()
    try:
        await asyncio.sleep(seconds)
    finally:
        transport.resume_reading()


def detect_a_dead_peer(response: aiohttp.ClientResponse) -> None:
    transport = response.connection.transport if response.connection is not None else None
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
