"""Runs a program in a container, through the API server.

Over a WebSocket: the first byte of each message is the channel it belongs to (k8s.io/kubelet
pkg/cri/streaming/remotecommand websocket.go). kube-apiserver has the protocol v5 since 1.30, v4 since 1.4.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import aiohttp
from msgspec import Struct

from nodeagent.proxy.source.client.api_errors import KubeError, OversizedError, ServerUnreachableError, status_of

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS = range(4)
OUTPUT_LIMIT_BYTES = 16 << 20
EXIT_CODE = "ExitCode"


class PodExecError(KubeError):
    """The program was not run, or how it ended is not known."""


class ExecResult(Struct, frozen=True):
    """How a program ended. code: its exit code. content: its standard output. errors: its standard error, as text."""

    code: int
    content: bytes
    errors: str

    @property
    def output(self) -> str:
        """The standard output as text."""
        return self.content.decode(errors="replace")


class ChannelClient(Protocol):
    """Opens WebSockets to an API server."""

    def channel(
        self, path: str, parameters: Iterable[tuple[str, str]], protocols: Iterable[str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]: ...


async def run_in_pod(
    client: ChannelClient,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    seconds: float,
    limit: int = OUTPUT_LIMIT_BYTES,
) -> ExecResult:
    """Runs `command` and waits for its end. The program's standard input has these bytes, and stays open. limit: bytes of output.

    Raises PodExecError, ServerUnreachableError also if it takes longer than `seconds`, or another KubeError.
    """
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    parameters = [("container", container), ("stdout", "true"), ("stderr", "true")]
    parameters += [("stdin", "true")] if stdin else []
    parameters += [("command", word) for word in command]
    gathered: dict[int, bytearray] = {STDOUT: bytearray(), STDERR: bytearray(), STATUS: bytearray()}
    try:
        async with asyncio.timeout(seconds), client.channel(path, parameters, PROTOCOLS) as opened:
            if stdin:
                await opened.send_bytes(bytes((STDIN,)) + stdin)
            await _gather(opened, gathered, limit)
    except TimeoutError as error:
        raise ServerUnreachableError(
            f"{command[0]} in pod {namespace}/{pod}: it did not end in {seconds:g} s"
        ) from error
    return _ended(gathered, f"pod {namespace}/{pod}")


async def _gather(opened: AsyncIterator[aiohttp.WSMessage], gathered: dict[int, bytearray], limit: int) -> None:
    """Collects messages until the other side closes the channel. Raises OversizedError."""
    left = limit
    async for message in opened:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        piece = message.data[1:]
        left -= len(piece)
        if left < 0:
            raise OversizedError(f"a program wrote more than {limit} bytes")
        if message.data[0] in gathered:
            gathered[message.data[0]] += piece


def _ended(gathered: dict[int, bytearray], where: str) -> ExecResult:
    if not gathered[STATUS]:
        raise PodExecError(f"{where}: the connection ended before the program did")
    status = status_of(bytes(gathered[STATUS]))
    causes = (status.details.causes if status.details else None) or ()
    said = next((cause.message for cause in causes if cause.reason == EXIT_CODE), None)
    if said is None and status.reason is not None:
        raise PodExecError(f"{where}: {status.message or status.reason}")
    code = int(said) if said is not None and said.isdigit() else 0
    return ExecResult(code, bytes(gathered[STDOUT]), gathered[STDERR].decode(errors="replace"))
