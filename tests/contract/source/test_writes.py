"""A write is sent once: what the server at the other end may have carried out is nobody else's."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import ServerUnreachableError
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.server_choice import Server
from nodeagent.proxy.source.client.tls import TlsTrust

PATH = "/api/v1/services"


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it goes on"])
@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_a_write_whose_connection_breaks_is_sent_once(
    fake_api_server: Callable[[], Any], method: str, ends: bool
) -> None:
    """Also those that HTTP calls idempotent, for which aiohttp opens another connection."""
    received: list[bytes] = []
    listening: list[asyncio.Server] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"GET "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        received.append(head.split()[0])
        if ends:
            listening[0].close()
        writer.transport.abort()

    async def main() -> None:
        async with fake_api_server() as second, await asyncio.start_server(serve, "127.0.0.1", 0) as breaking:
            listening.append(breaking)
            url = f"http://127.0.0.1:{breaking.sockets[0].getsockname()[1]}"
            both = ClusterAccess(url, TlsTrust(), FixedCredential(), others=(Server(second.url),))
            async with ApiClient(both, chance=lambda: 0.0) as client:
                await client.get(PATH)
                with pytest.raises(ServerUnreachableError) as broken:
                    await client.request_json(method, PATH, {})
                assert broken.value.sent
                assert (received, second.requests) == ([method.encode()], [])

    asyncio.run(main())
