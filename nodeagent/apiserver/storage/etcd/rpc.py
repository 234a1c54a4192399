"""gRPC to one member of etcd, by grpclib: the only module that knows which library it is. Messages are bytes here."""

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
    """Where a member answers clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CallFailed(Exception):
    """A call was not answered as it should be. `code` is gRPC's, or one of those below."""

    REFUSED: Final = "REFUSED"
    """There is no connection; the call was never sent."""
    LATE: Final = "LATE"
    """No answer within the time given."""
    LOST: Final = "LOST"
    """The connection ended before the answer."""
    FOREIGN: Final = "FOREIGN"
    """The peer is not a member of the expected cluster; the call was not sent."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text or code)
        self.code = code
        self.text = text


class Stream(Protocol):
    """A call in both directions."""

    async def send(self, message: bytes) -> None:
        """Raises CallFailed, also where the other side reads so little that there is no room for the message."""
        ...

    async def receive(self) -> bytes:
        """The next message. Raises CallFailed, also when there will be none."""
        ...


class _AsTheyAre(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002 - the library's
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:  # noqa: ARG002 - the library's
        return bytes(data)


class Member:
    """One member; it is connected to when first called, and again after a connection was lost.

    `meet` is called with each new connection before any other call; it may use `introduction`, and raise CallFailed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        context: ssl.SSLContext | None,
        meet: "Callable[[Member], Awaitable[None]] | None" = None,
    ) -> None:
        self.endpoint = endpoint
        self._meet = meet
        self._met: object = None
        self._meeting = asyncio.Lock()
        self._channel = Channel(
            endpoint.host,
            endpoint.port,
            ssl=context,
            codec=_AsTheyAre(),
            config=Configuration(
                http2_connection_window_size=_WINDOW_BYTES,
                http2_stream_window_size=_WINDOW_BYTES,
            ),
        )

    async def call(self, method: str, request: bytes, seconds: float) -> bytes:
        """The answer, within so many seconds. Raises CallFailed, with REFUSED where the request was not sent in that time."""
        begun = asyncio.Event()
        try:
            return await apart(self._call(method, request, begun), seconds)
        except CallFailed as failed:
            if failed.code in (CallFailed.LATE, CallFailed.LOST) and not begun.is_set():
                raise CallFailed(CallFailed.REFUSED, failed.text) from None
            raise

    async def introduction(self, method: str, seconds: float) -> bytes:
        """Returns the peer's answer to an empty call. Raises CallFailed."""
        return await apart(self._ask(method, b"", asyncio.Event()), seconds)

    async def _call(self, method: str, request: bytes, begun: asyncio.Event) -> bytes:
        await self._connect()
        return await self._ask(method, request, begun)

    async def _ask(self, method: str, request: bytes, begun: asyncio.Event) -> bytes:
        """`begun` is set before the first byte of the request may leave."""
        async with _own_errors(None):
            await self._reach()
            async with self._open(method, Cardinality.UNARY_UNARY) as stream:
                begun.set()
                await stream.send_message(request, end=True)
                answer = await stream.recv_message()
                await stream.recv_trailing_metadata()
        if answer is None:
            raise CallFailed(CallFailed.LOST, "no answer")
        return bytes(answer)

    @contextlib.asynccontextmanager
    async def stream(self, method: str, metadata: Mapping[str, str], seconds: float) -> AsyncIterator[Stream]:
        """A stream, begun within so many seconds, in which each message is sent within as many. Leaving the block ends it.

        Only for `apart`. Raises CallFailed.
        """
        async with _own_errors(seconds):
            await self._connect()
        async with _own_errors(None), self._open(method, Cardinality.STREAM_STREAM, metadata) as stream:
            # Left with an error, it is ended by the library, which then does not wait until there is room to say so.
            yield _Open(stream, seconds)
            with contextlib.suppress(CallFailed):
                async with _own_errors(seconds):
                    await stream.cancel()

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    async def _connect(self) -> None:
        protocol = await self._reach()
        if protocol is self._met or self._meet is None:
            return
        async with self._meeting:
            protocol = await self._reach()
            if protocol is not self._met:
                await self._meet(self)
                self._met = protocol

    async def _reach(self) -> object:
        try:
            return await self._channel.__connect__()
        except OSError as error:
            raise CallFailed(CallFailed.REFUSED, str(error)) from None

    def _open(self, method: str, cardinality: Cardinality, metadata: Mapping[str, str] | None = None) -> Any:
        return self._channel.request(method, cardinality, bytes, bytes, metadata=metadata)


async def apart(work: Coroutine[Any, Any, _Result], seconds: float | None) -> _Result:
    """What work returns that uses this library, in a task of its own; in so many seconds, or CallFailed.

    When a connection is lost grpclib cancels the tasks that wait for it, and does not take that back: in a task that goes on, the
    next time that is up would end it (asyncio/timeouts.py asks whether it was cancelled otherwise).
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


class _Open:
    def __init__(self, stream: Any, seconds: float) -> None:
        self._stream = stream
        self._seconds = seconds

    async def send(self, message: bytes) -> None:
        async with _own_errors(self._seconds):
            await self._stream.send_message(message)

    async def receive(self) -> bytes:
        async with _own_errors(None):
            message = await self._stream.recv_message()
            if message is None:
                await self._stream.recv_trailing_metadata()
        if message is None:
            raise CallFailed(CallFailed.LOST, "the stream has ended")
        return bytes(message)


@contextlib.asynccontextmanager
async def _own_errors(seconds: float | None) -> AsyncIterator[None]:
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
