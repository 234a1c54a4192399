"""The API server's certificates come from another authority from now on, and the file that the agent trusts says so too."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import ServerUnreachableError
from nodeagent.proxy.source.client.tls import TlsTrust

from .test_client import PATH, TLS, Servers, access, server_context


@pytest.mark.parametrize("first", ["the server", "the file"])
def test_a_server_that_changes_to_another_authority_is_believed_once_both_have_it(
    fake_api_server: Servers, tmp_path: Path, first: str
) -> None:
    """Whichever of the two changes first: until the other one has, the server is nobody we know."""
    authority, key, certificate = tmp_path / "ca.crt", tmp_path / "new-key.pem", tmp_path / "new.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=api.test"
    names = ["-addext", "subjectAltName=DNS:api.test", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made.split(), *names], check=True, capture_output=True, timeout=60)
    authority.write_bytes((TLS / "ca.pem").read_bytes())
    context = server_context()

    def change(which: str) -> None:
        if which == "the server":
            context.load_cert_chain(certificate, key)
        else:
            authority.write_bytes(certificate.read_bytes())

    async def main() -> None:
        trust = TlsTrust(authority, "api.test")
        async with fake_api_server(context) as server, ApiClient(access(server, trust=trust)) as client:
            server.reply(PATH, {}, headers={"Connection": "close"})
            assert await client.get(PATH) == b"{}"
            change(first)
            with pytest.raises(ServerUnreachableError, match="certificate"):
                await client.get(PATH)
            change("the file" if first == "the server" else "the server")
            server.reply(PATH, {})
            assert await client.get(PATH) == b"{}"

    asyncio.run(main())
