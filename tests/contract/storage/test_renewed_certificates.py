"""The certificate that etcd is shown is the one in the file, from the next connection on; a broken one does not take its place."""

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Self

import pytest

from nodeagent.apiserver.storages import EtcdSettings
from tests.harness.etcd import Files


class Peer:
    """A server that wants certificates of clients, and remembers which it was shown."""

    def __init__(self, files: Files) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.authority)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(*files.member)
        self.shown: list[str] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0, ssl=self._context)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.shown.append(writer.get_extra_info("peercert")["serialNumber"])
        writer.write(b"x")
        await reader.read()
        writer.close()

    async def meet(self, context: ssl.SSLContext) -> str:
        """What this server is shown by a client with that context."""
        port = self._server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert await reader.read(1) == b"x"
        writer.close()
        await writer.wait_closed()
        return self.shown[-1]


def test_a_certificate_that_was_renewed_is_shown_from_the_next_connection_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files.make(tmp_path)
    certificate, key = (Path(shutil.copy(path, tmp_path / f"used{path.suffix}")) for path in files.client)
    settings = EtcdSettings(servers=(), secure=True, cafile=files.authority, certfile=certificate, keyfile=key)

    async def scenario() -> None:
        context = settings.context()
        assert context is not None
        async with Peer(files) as peer:
            first = await peer.meet(context)
            assert await peer.meet(context) == first
            # Another certificate alone is not the key's: the old pair stays in use.
            shutil.copy(files.member[0], certificate)
            assert await peer.meet(context) == first
            assert "were not reloaded" in caplog.text
            shutil.copy(files.member[1], key)
            assert await peer.meet(context) != first
            key.unlink()
            assert await peer.meet(context) == peer.shown[-2] != first

    asyncio.run(scenario())
