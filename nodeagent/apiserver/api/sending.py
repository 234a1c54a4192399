"""Sends responses piece by piece: little is buffered for slow clients, and encrypting much data does not delay other requests."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aiohttp import HttpVersion11, web

from nodeagent.apiserver.api.protobuf_answers import ProtobufWatch
from nodeagent.apiserver.api.replies import NextPiece, Reply
from nodeagent.apiserver.api.watches import Watch
from nodeagent.runtime.serving.connection import SERVER, write_in_time

_PIECE_BYTES: Final = 128 * 1024
_LITTLE_BYTES: Final = 16 * 1024
"""Written without waiting for a turn: to encrypt it takes a tenth of a millisecond."""
_PIECE_SECONDS: Final = 30.0
"""A client must accept a piece within this time."""
WHOLE_BYTES: Final = 512 * 1024
"""A response of up to this size is made before it is sent, so that its length is known."""


async def send(
    request: web.BaseRequest, reply: Reply, next_piece: NextPiece, turn: Callable[[], Awaitable[None]]
) -> web.StreamResponse:
    response: web.StreamResponse
    if reply.length is not None and reply.length <= _PIECE_BYTES:
        response = web.Response(status=reply.status, body=b"".join(reply.pieces()))
    else:
        response = _streamed_response(request, reply)
    response.headers["Server"] = SERVER
    response.headers["Content-Type"] = reply.content_type
    for name, value in reply.headers:
        response.headers.add(name, value)
    if not request.content.is_eof():
        # A body that was not read would be parsed as the next request.
        response.force_close()
    with suppress(ConnectionError):
        await response.prepare(request)
        if request.transport is not None:
            # Over TLS asyncio would keep 512 KiB (asyncio/sslproto.py).
            request.transport.set_write_buffer_limits(high=_PIECE_BYTES)
        if not isinstance(response, web.Response):
            pieces = reply.pieces()
            while len(chunk := await next_piece(pieces)):
                for start in range(0, len(chunk), _PIECE_BYTES):
                    await turn()
                    await write_in_time(response.write(chunk[start : start + _PIECE_BYTES]), request, _PIECE_SECONDS)
        await write_in_time(response.write_eof(), request, _PIECE_SECONDS)
    return response


def _streamed_response(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status)
    if reply.length is not None:
        response.content_length = reply.length
    else:
        _delimit_body(request, response)
    return response


def _delimit_body(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Marks the end of the body by chunked encoding, or by closing the connection if the client knows no chunks (HTTP/1.0)."""
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    else:
        response.force_close()


class _Frames:
    """The body of a response that is written frame by frame; in chunked encoding, if the client knows that."""

    def __init__(
        self, request: web.BaseRequest, response: web.StreamResponse, turn: Callable[[], Awaitable[None]]
    ) -> None:
        self._request = request
        self._turn = turn
        self._response = response

    def write_now(self, frames: bytes) -> bool:
        """Writes to the transport if less than its high-water mark is buffered; otherwise returns False."""
        protocol = self._request.protocol
        transport = protocol.transport
        if transport is None or transport.is_closing() or protocol.writing_paused:
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(frames), frames) if self._response.chunked else frames)
        return True

    async def write(self, frames: bytes | memoryview) -> None:
        """Writes through aiohttp, in pieces, and waits while the connection buffers more than one. Raises ConnectionError, and
        ends the connection, if a watcher does not accept a piece in time."""
        for start in range(0, len(frames), _PIECE_BYTES):
            piece = frames if len(frames) <= _PIECE_BYTES else frames[start : start + _PIECE_BYTES]
            if len(piece) > _LITTLE_BYTES:
                await self._turn()
            await write_in_time(self._response.write(piece), self._request, _PIECE_SECONDS)


async def stream(
    request: web.BaseRequest, watch: Watch | ProtobufWatch, turn: Callable[[], Awaitable[None]]
) -> web.StreamResponse:
    response = web.StreamResponse()
    response.headers["Server"] = SERVER
    response.headers["Content-Type"] = watch.content_type
    _delimit_body(request, response)
    try:
        await response.prepare(request)
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=_PIECE_BYTES)
        await watch.run(_Frames(request, response, turn))
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        # The watcher disconnected; that is how watches usually end.
        if request.transport is not None and not request.transport.is_closing():
            raise
    return response
