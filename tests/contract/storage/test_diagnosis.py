"""Why a member does not answer, in words for who runs the server: one for each mistake in --etcd-servers and its certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from nodeagent.apiserver.storage.etcd.diagnosis import diagnose
from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.apiserver.storage.etcd.tls_files import RenewedContext
from tests.harness.etcd import Files

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


async def speaks_http_2(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(SETTINGS)
    await reader.read(-1)


async def is_a_web_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def says_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(-1)


async def hangs_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@asynccontextmanager
async def peer(does: Peer, files: Files | None = None) -> AsyncIterator[Endpoint]:
    """Somebody at an endpoint; with TLS, and wanting certificates, if there are files."""

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await does(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    context = None
    if files is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(*files.member)
    server = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context)
    async with server:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])


async def said(does: Peer, context: ssl.SSLContext | None, files: Files | None = None) -> str:
    async with peer(does, files) as endpoint:
        certificate = context.certfile if isinstance(context, RenewedContext) else None
        return await diagnose(endpoint, context, certificate)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Of another authority."""
    return Files.make(tmp_path_factory.mktemp("others"))


def client(authority: Files, shown: Files | None) -> ssl.SSLContext:
    return RenewedContext.of(authority.authority, *(shown.client if shown is not None else (None, None)))


def test_without_tls() -> None:
    async def scenario() -> None:
        assert await said(speaks_http_2, None) == ""
        assert "not etcd" in await said(is_a_web_server, None)
        assert await said(says_nothing, None) == "it accepts connections and does not answer"
        assert "does it need https://" in await said(hangs_up, None)
        async with peer(says_nothing) as endpoint:
            pass
        assert await diagnose(endpoint, None) == "Connection refused"

    asyncio.run(scenario())


def test_with_tls(files: Files, others: Files) -> None:
    async def scenario() -> None:
        assert await said(speaks_http_2, client(files, files), files) == ""
        assert "no authority of --etcd-cafile" in await said(speaks_http_2, client(others, files), files)
        assert "--etcd-certfile and --etcd-keyfile are not set" in await said(speaks_http_2, client(files, None), files)
        refused = await said(speaks_http_2, client(files, others), files)
        assert "refuses the certificate of --etcd-certfile" in refused
        assert refused.endswith(" GMT")
        assert "does it need http://" in await said(hangs_up, client(files, files))
        assert "does it need http://" in await said(is_a_web_server, client(files, files))
        assert await said(says_nothing, client(files, files)) == "it hangs, or does not speak TLS"

    asyncio.run(scenario())
