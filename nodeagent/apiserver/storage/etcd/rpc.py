"""gRPC to one member of etcd, by grpclib: the only module that uses this library. Messages are bytes here."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.const import Cardinality, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

_WINDOW_BYTES: Final = 16 * 1024 * 1024

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which a member answers clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CallFailed(Exception):
    """A call failed. `code` is gRPC's, or one of those below."""

    REFUSED: Final = "REFUSED"
    """Without a connection, the call was never sent."""
    LATE: Final = "LATE"
    """No answer within the time limit."""
    LOST: Final = "LOST"
    """The connection ended before the answer."""
    FOREIGN: Final = "FOREIGN"
    """The peer is not a member of the expected cluster; the call was not sent."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text or code)
        self.code = code
        self.text = text


class Stream(Protocol):
    """A bidirectional call."""

    async def send(self, message: bytes) -> None:
        """Sends a message. Raises CallFailed, also if the peer reads too slowly."""
        ...

    async def receive(self) -> bytes:
        """Returns the next message. Raises CallFailed, also at the end of the stream."""
        ...


class _BytesCodec(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002 - the library's
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:  # noqa: ARG002 - the library's
        return bytes(data)


class Member:
    """One member. Connects at the first call, and again after a connection was lost. `check` is called with each new connection
    before any other call; it may use `call_unchecked`, and raise CallFailed."""

    def __init__(
        self,
        endpoint: Endpoint,
        context: ssl.SSLContext | None,
        check: "Callable[[Member], Awaitable[None]] | None" = None,
    ) -> None:
        self.endpoint = endpoint
        self._check = check
        self._checked: object = None
        self._checking = asyncio.Lock()
        self._channel = Channel(
            endpoint.host,
            endpoint.port,
            ssl=context,
            codec=_BytesCodec(),
            config=Configuration(
                http2_connection_window_size=_WINDOW_BYTES,
                http2_stream_window_size=_WINDOW_BYTES,
            ),
        )

    async def call(self, method: str, request: bytes, seconds: float) -> bytes:
        """Returns the answer within `seconds`. Raises CallFailed, with REFUSED if the request was not sent in that time."""
        begun = asyncio.Event()
        try:
            return await in_own_task(self._call(method, request, begun), seconds)
        except CallFailed as failed:
            if failed.code in (CallFailed.LATE, CallFailed.LOST) and not begun.is_set():
                raise CallFailed(CallFailed.REFUSED, failed.text) from None
            raise

    async def call_unchecked(self, method: str, seconds: float) -> bytes:
        """Returns the answer to an empty request, without the check of a new connection. Raises CallFailed."""
        return await in_own_task(self._ask(method, b"", asyncio.Event()), seconds)

    async def _call(self, method: str, request: bytes, begun: asyncio.Event) -> bytes:
        await self._connect()
        return await self._ask(method, request, begun)

    async def _ask(self, method: str, request: bytes, begun: asyncio.Event) -> bytes:
        """Returns the answer. Sets `begun` before the first byte of the request may be sent."""
        async with _as_call_failed(None):
            await self._reach()
            async with self._request(method, Cardinality.UNARY_UNARY) as stream:
                begun.set()
                await stream.send_message(request, end=True)
                answer = await stream.recv_message()
                await stream.recv_trailing_metadata()
        if answer is None:
            raise CallFailed(CallFailed.LOST, "no answer")
        return bytes(answer)

    @contextlib.asynccontextmanager
    async def stream(self, method: str, metadata: Mapping[str, str], seconds: float) -> AsyncIterator[Stream]:
        """Opens a stream within `seconds`; each message must be sent within the same time. Leaving the block ends it. Use it
        only within `in_own_task`. Raises CallFailed."""
        async with _as_call_failed(seconds):
            await self._connect()
        async with _as_call_failed(None), self._request(method, Cardinality.STREAM_STREAM, metadata) as stream:
            # After an error the library ends the stream, without waiting until it can send a reset.
            yield _OpenStream(stream, seconds)
            with contextlib.suppress(CallFailed):
                async with _as_call_failed(seconds):
                    await stream.cancel()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    async def _connect(self) -> None:
        protocol = await self._reach()
        if protocol is self._checked or self._check is None:
            return
        async with self._checking:
            protocol = await self._reach()
            if protocol is not self._checked:
                await self._check(self)
                self._checked = protocol

    async def _reach(self) -> object:
        try:
            return await self._channel.__connect__()
        except OSError as error:
            raise CallFailed(CallFailed.REFUSED, str(error)) from None

    def _request(self, method: str, cardinality: Cardinality, metadata: Mapping[str, str] | None = None) -> Any:
        return self._channel.request(method, cardinality, bytes, bytes, metadata=metadata)


async def in_own_task(work: Coroutine[Any, Any, _Result], seconds: float | None) -> _Result:
    """Runs work that uses this library in a task of its own. Returns its result; raises CallFailed after `seconds`.

    When a connection is lost, grpclib cancels the tasks that wait for it and does not undo that: a task that goes on would be
    ended by its next timeout (asyncio/timeouts.py checks whether it was cancelled otherwise).
    """
    task = asyncio.create_task(work, name="etcd-call")
    try:
        await asyncio.wait({task}, timeout=seconds)
        is_late = not task.done()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if is_late:
        raise CallFailed(CallFailed.LATE, f"no answer within {seconds} s")
    if task.cancelled():
        raise CallFailed(CallFailed.LOST, "the connection was lost")
    return task.result()


class _OpenStream:
    def __init__(self, stream: Any, seconds: float) -> None:
        self._stream = stream
        self._seconds = seconds

    async def send(self, message: bytes) -> None:
        async with _as_call_failed(self._seconds):
            await self._stream.send_message(message)

    async def receive(self) -> bytes:
        async with _as_call_failed(None):
            message = await self._stream.recv_message()
            if message is None:
                await self._stream.recv_trailing_metadata()
        if message is None:
            raise CallFailed(CallFailed.LOST, "the stream has ended")
        return bytes(message)


@contextlib.asynccontextmanager
async def _as_call_failed(seconds: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except CallFailed:
        raise
    except GRPCError as error:
        code = error.status.name if isinstance(error.status, Status) else str(error.status)
        raise CallFailed(code, error.message or "") from None
    except TimeoutError:
        raise CallFailed(CallFailed.LATE, f"no answer within {seconds} s") from None
    except (StreamTerminatedError, ProtocolError, OSError) as error:
        raise CallFailed(CallFailed.LOST, str(error)) from None
