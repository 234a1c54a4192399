"""A program in a container, through an API server that frames its output as a kubelet does."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import (
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    ServerUnreachableError,
)
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.pod_exec import PROTOCOLS, ExecResult, PodExecError, run_in_pod

PATH = "/api/v1/namespaces/shop/pods/web-1/exec"
SUCCESS = {"metadata": {}, "status": "Success"}
Say = Callable[[web.WebSocketResponse], Any]


def failure(**more: Any) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", **more}


def exit_code(code: int) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return failure(reason="NonZeroExitCode", message=f"exit code {code}", details={"causes": causes})


def run(
    fake_api_server: Callable[[], Any],
    frames: list[bytes],
    *,
    protocols: tuple[str, ...] = PROTOCOLS,
    seconds: float = 5.0,
    stdin: bytes = b"",
) -> tuple[ExecResult, Any, list[bytes]]:
    """The result, the server, what came by standard input."""
    said: list[bytes] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(protocols=protocols)
        await opened.prepare(request)
        if stdin:
            said.append(await opened.receive_bytes())
        for frame in frames:
            await opened.send_bytes(frame)
        if not frames:
            await opened.receive()  # until the client has enough
        await opened.close()
        return opened

    async def main() -> tuple[ExecResult, Any, list[bytes]]:
        async with fake_api_server() as server:
            server.answer(PATH, serve)
            access = ClusterAccess(server.url, TlsTrust(), FixedCredential("Bearer secret"))
            async with ApiClient(access) as client:
                ran = await run_in_pod(
                    client, "shop", "web-1", "main", ["say", "two words"], stdin=stdin, seconds=seconds
                )
                return ran, server, said

    return asyncio.run(main())


def status(document: dict[str, Any]) -> bytes:
    return b"\x03" + json.dumps(document).encode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_output_and_errors_are_separate(fake_api_server: Callable[[], Any], protocol: str) -> None:
    frames = [b"\x01", b"\x01one ", b"\x02oh", b"\x01two", status(SUCCESS)]

    ran, server, _ = run(fake_api_server, frames, protocols=(protocol,))

    assert ran == ExecResult(0, b"one two", "oh")
    (_, query, headers) = server.requests[0]
    assert query["container"] == "main"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Accept"] == "*/*", "kube-apiserver answers 406 to a client that wants JSON"


def test_standard_input_is_a_channel_too(fake_api_server: Callable[[], Any]) -> None:
    _, server, said = run(fake_api_server, [status(SUCCESS)], stdin=b"asked\n")

    assert said == [b"\x00asked\n"]
    assert server.requests[0][1]["stdin"] == "true"


def test_an_exit_code_is_the_programs(fake_api_server: Callable[[], Any]) -> None:
    ran, _, _ = run(fake_api_server, [b"\x01no", status(exit_code(3))])

    assert ran == ExecResult(3, b"no", "")


@pytest.mark.parametrize(
    ("frames", "error", "said"),
    [
        ([b"\x01half"], PodExecError, "pod shop/web-1: the connection ended before the program did"),
        (
            [status(failure(reason="InternalError", message="exec: no such file"))],
            PodExecError,
            "pod shop/web-1: exec: no such file",
        ),
        ([], ServerUnreachableError, "say in pod shop/web-1: it did not end in 0.5 s"),
    ],
    ids=["broken off", "not started", "too long"],
)
def test_a_stream_without_an_exit_status_is_an_error(
    fake_api_server: Callable[[], Any], frames: list[bytes], error: type[KubeError], said: str
) -> None:
    with pytest.raises(error, match=said):
        run(fake_api_server, frames, seconds=0.5)


def test_a_server_that_speaks_none_of_the_protocols_is_named(fake_api_server: Callable[[], Any]) -> None:
    with pytest.raises(MalformedAnswerError, match=r"supports none of v5\.channel\.k8s\.io, v4\.channel\.k8s\.io"):
        run(fake_api_server, [status(SUCCESS)], protocols=())


def test_a_refusal_is_the_status_that_it_is(fake_api_server: Callable[[], Any]) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response(failure(reason="Forbidden", message="no"), status=403)

    async def main() -> None:
        async with fake_api_server() as server:
            server.answer(PATH, refuse)
            async with ApiClient(ClusterAccess(server.url, TlsTrust(), FixedCredential())) as client:
                await run_in_pod(client, "shop", "web-1", "main", ["say"], seconds=5.0)

    with pytest.raises(ForbiddenError):
        asyncio.run(main())
