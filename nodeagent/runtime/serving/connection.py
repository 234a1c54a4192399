"""An HTTP connection whose client is limited before there is a request: in bytes, headers and time of a request's head.

aiohttp limits each header (8 kB) and their number (128). Together that is a megabyte for each connection, which it keeps twice; the bytes
of a whole head and the time until it is complete have no limit. So bytes are counted here, as they come and before they are parsed. Two
other limits of aiohttp are high: 32 requests may wait behind the one that is answered, and 256 kB of an unread body are kept.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from nodeagent.runtime.serving.admission import Admission

HEAD_BYTES: Final = 32 * 1024
"""Of the first line and all headers of a request; 431 for more."""
HEADERS: Final = 64
WAITING: Final = 4
"""Requests that may wait behind the one that is answered. No client that we know sends any before it has its answer."""
SERVER: Final = "nodeagent"
"""The header Server: without one, aiohttp sends its version and Python's."""
LINGER_SECONDS: Final = 10.0
"""How long the rest of a body may arrive, unread, after the answer."""
_SLICE_BYTES: Final = 4096
"""What is parsed at a time: if a head begins in the same slice in which something else ends, up to this many bytes are not counted."""
_TOO_LARGE: Final = (
    f"HTTP/1.1 431 Request Header Fields Too Large\r\nServer: {SERVER}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
).encode()
_MUTE: Final = logging.getLogger(f"{__name__}.aiohttp")
"""aiohttp would log what it received."""
_MUTE.disabled = True


class BoundedConnection(RequestHandler):
    """A connection of `admission` under `key`; it leaves when it ends.

    head_seconds: for a request's head, from the connection on for the first and from the first byte on for the others.
    read_bytes: of a body that are kept before it is read. failed: called with the status of an answer that aiohttp gives, and the error.
    ended: called when the connection has ended.
    """

    def __init__(
        self,
        server: web.Server,
        admission: Admission,
        key: Hashable,
        *,
        head_seconds: float,
        keepalive_seconds: float,
        read_bytes: int,
        failed: Callable[[int, BaseException | None], None],
        ended: Callable[[], None],
    ) -> None:
        # None turns the access log off (aiohttp's AppRunner passes it on like this); its annotation forgets that.
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=_MUTE,
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=keepalive_seconds,
            max_headers=HEADERS,
            read_bufsize=read_bytes,
            lingering_time=LINGER_SECONDS,
        )
        self._admission = admission
        self._key = key
        self._head_seconds = head_seconds
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._latest_body: StreamReader | None = None
        self._failed = failed
        self._ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._deadline = self._loop.call_later(self._head_seconds, self.force_close)

    def data_received(self, data: bytes) -> None:
        """Called by the loop, and by aiohttp, without data, to continue with what it had postponed."""
        for start in range(0, max(len(data), 1), _SLICE_BYTES):
            if self._force_close or self._close:
                return
            self._parse(data[start : start + _SLICE_BYTES])

    def _parse(self, data: bytes) -> None:
        arrived, body = self._request_count, self._latest_body
        is_head = body is None or body.is_eof()
        had_bytes = body.total_bytes if body is not None else 0
        super().data_received(data)
        if self._request_count > arrived:
            self._latest_body = self._messages[-1][1]
            self._stop_deadline()
            self._set_head_bytes(0)
            if len(self._messages) > WAITING + 1:
                self.force_close()
        elif is_head:
            self._add_to_head(len(data))
            if self._deadline is None and data:
                self._deadline = self._loop.call_later(self._head_seconds, self.force_close)
        elif body is not None and body.total_bytes > had_bytes:
            self._set_head_bytes(0)
        elif not self._reading_paused:
            # Trailers, which end a body in chunks, are headers. While reading is paused nothing is parsed.
            self._add_to_head(len(data))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the loop; frees the place of the connection."""
        self._stop_deadline()
        self._admission.leave(self._key)
        super().connection_lost(exc)
        self._ended()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's words
    ) -> web.StreamResponse:
        """Returns an answer without aiohttp's text, which repeats what was sent."""
        self._failed(status, exc)
        if request.writer.output_size:
            raise ConnectionError("an answer was begun")
        refusal = web.Response(status=status, text=f"{HTTPStatus(status).phrase.lower()}\n", headers={"Server": SERVER})
        refusal.force_close()
        return refusal

    def log_exception(self, *_: object, **kw: object) -> None:
        """Called by aiohttp for what is not a request, and for unexpected errors."""
        error = kw.get("exc_info")
        self._failed(HTTPStatus.INTERNAL_SERVER_ERROR, error if isinstance(error, BaseException) else None)

    def _add_to_head(self, size_bytes: int) -> None:
        self._set_head_bytes(self._head_bytes + size_bytes)
        if self._head_bytes > HEAD_BYTES:
            self._refuse()

    def _set_head_bytes(self, size_bytes: int) -> None:
        if size_bytes != self._head_bytes:
            self._head_bytes = size_bytes
            self._admission.note_unfinished(self._key, size_bytes)

    def _refuse(self) -> None:
        """Closes the connection; with 431 if no answer to an earlier request is in progress."""
        if self.transport is not None and not self._request_in_progress and not self._messages:
            self.transport.write(_TOO_LARGE)
        self.force_close()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


async def write_in_time(written: Awaitable[None], request: web.BaseRequest, seconds: float) -> None:
    """Waits for a write. Raises ConnectionError, and aborts the connection, if the client does not read it in time."""
    try:
        async with asyncio.timeout(seconds):
            await written
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client reads nothing") from None
