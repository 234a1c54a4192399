"""The client over real connections: credentials, TLS and the names failures get."""

import asyncio
import gzip
import os
import ssl
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, Protocol, Self

import pytest
from msgspec import structs

from nodeagent.proxy.source.client.api_client import ApiClient, Timeouts
from nodeagent.proxy.source.client.api_errors import (
    CredentialsError,
    ForbiddenError,
    MalformedAnswerError,
    NotServedError,
    OversizedError,
    RejectedError,
    ServerFailedError,
    ServerUnreachableError,
    ThrottledError,
    UnauthorizedError,
)
from nodeagent.proxy.source.client.credentials import (
    ClientCertificate,
    Credential,
    CredentialSource,
    FixedCredential,
    TokenFile,
)
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsContexts, TlsTrust

TLS = Path(__file__).parent / "tls"
PATH = "/api/v1/services"


class Server(Protocol):
    url: str
    requests: list[Any]
    bodies: list[bytes]
    peers: list[str]

    def reply(self, path: str, body: object, status: int = 200, headers: dict[str, str] | None = None) -> None: ...

    def stream(self, path: str, pieces: Iterable[bytes], end: str = "close", every_seconds: float = 0.0) -> None: ...


Servers = Callable[..., AbstractAsyncContextManager[Server]]
Recording = Callable[[str], Any]


class Rotating:
    """A credential that is renewed when it is refused."""

    def __init__(self) -> None:
        self.generation = 1

    async def current(self) -> Credential:
        return Credential(f"Bearer {self.generation}")

    def refused(self) -> None:
        self.generation += 1


def access(server: Server, credentials: CredentialSource | None = None, **more: Any) -> ClusterAccess:
    return ClusterAccess(server.url, more.pop("trust", TlsTrust()), credentials or FixedCredential(), **more)


def tokens_of(server: Server) -> list[str | None]:
    return [headers.get("Authorization") for _, _, headers in server.requests]


@pytest.mark.parametrize(
    ("status", "body", "error_class", "text"),
    [
        pytest.param(401, "unauthorized-401", UnauthorizedError, "401 Unauthorized: Unauthorized", id="401"),
        pytest.param(403, {"message": "no"}, ForbiddenError, "403: no", id="403"),
        pytest.param(404, "unknown-path-404", NotServedError, "404: 404 page not found", id="404 in plain text"),
        pytest.param(302, b"", RejectedError, "302: no message", id="a redirect is not followed"),
        pytest.param(400, {"message": "m", "reason": "BadRequest"}, RejectedError, "400 BadRequest: m", id="400"),
        pytest.param(429, b"", ThrottledError, "429: no message", id="429"),
        pytest.param(502, b"<h1>Bad</h1>\nmore", ServerFailedError, "502: <h1>Bad</h1>", id="502 of a proxy"),
    ],
)
def test_an_error_status_becomes_an_error_of_its_class(
    fake_api_server: Servers,
    recording: Recording,
    status: int,
    body: object,
    error_class: type[Exception],
    text: str,
) -> None:
    content = recording(body)["body"] if isinstance(body, str) else body
    content = content.encode() if isinstance(content, str) else content

    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server)) as client:
            for _ in range(4):
                server.reply(PATH, content, status)
            with pytest.raises(error_class) as caught:
                await client.get(PATH)
            assert str(caught.value) == text
            with pytest.raises(error_class):
                async with client.stream(PATH, ()):
                    raise AssertionError("the stream was refused")

    asyncio.run(main())


def test_a_refused_credential_is_renewed_once(fake_api_server: Servers) -> None:
    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server, Rotating())) as client:
            server.reply(PATH, {}, 401)
            server.reply(PATH, {"ok": True})
            assert await client.get(PATH) == b'{"ok": true}'
            server.reply(PATH, {}, 401)
            server.reply(PATH, {}, 401)
            with pytest.raises(UnauthorizedError):
                await client.get(PATH)
            assert tokens_of(server) == ["Bearer 1", "Bearer 2", "Bearer 2", "Bearer 3"]

    asyncio.run(main())


def test_a_rotated_token_file_is_read_again(fake_api_server: Servers, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server, TokenFile(token))) as client:
            for text in ("first", "second"):
                token.write_text(text)
                server.reply(PATH, {})
                await client.get(PATH)
            token.unlink()
            with pytest.raises(CredentialsError, match=r"token file .*/token: No such file or directory"):
                await client.get(PATH)
            assert tokens_of(server) == ["Bearer first", "Bearer second"]

    asyncio.run(main())


def test_requests_carry_their_body_and_the_servers_path_prefix(fake_api_server: Servers) -> None:
    async def main() -> None:
        async with fake_api_server() as server:
            prefixed = ClusterAccess(f"{server.url}/k8s/clusters/c-1", TlsTrust(), FixedCredential.password("me", "pw"))
            async with ApiClient(prefixed, user_agent="nodeagent/1") as client:
                server.reply(f"/k8s/clusters/c-1{PATH}", {}, 201)
                body = await client.request_json(
                    "PATCH", PATH, {"a": 1}, parameters=[("force", "true")], content_type="application/merge-patch+json"
                )
            assert body == b"{}"
            path, query, headers = server.requests[0]
            assert (path, query, server.bodies) == (f"/k8s/clusters/c-1{PATH}", {"force": "true"}, [b'{"a":1}'])
            assert headers["Content-Type"] == "application/merge-patch+json"
            assert headers["User-Agent"] == "nodeagent/1"
            assert headers["Authorization"] == "Basic bWU6cHc="

    asyncio.run(main())


def test_selectors_survive_the_url(fake_api_server: Servers) -> None:
    selectors = {"labelSelector": "!service.kubernetes.io/headless,a in (b,c)", "fieldSelector": "spec.clusterIP!=None"}

    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server)) as client:
            server.reply(PATH, {})
            await client.get(PATH, selectors.items())
            assert server.requests[0][1] == selectors

    asyncio.run(main())


def test_no_connection_broken_streams_and_slow_answers_are_the_environments_fault(fake_api_server: Servers) -> None:
    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server), timeouts=Timeouts(body=0.1)) as client:
            server.stream(PATH, [b"half"], end="abort")
            async with client.stream(PATH, ()) as pieces:
                assert await anext(pieces) == b"half"
                with pytest.raises(ServerUnreachableError):
                    await anext(pieces)
            server.stream(PATH, [b"half"], end="hang")
            with pytest.raises(ServerUnreachableError, match="no answer in time"):
                await client.get(PATH)
        async with ApiClient(access(server)) as client:
            with pytest.raises(ServerUnreachableError, match=r"http://127\.0\.0\.1:\d+: .*"):
                await client.get(PATH)

    asyncio.run(main())


@pytest.mark.parametrize(("bytes_per_second", "arrives"), [(2.0, True), (10_000.0, False)])
def test_a_long_answer_over_a_slow_link_is_read_to_its_end(
    fake_api_server: Servers, bytes_per_second: float, arrives: bool
) -> None:
    """In the time for an answer, and as much more as its bytes take at the least rate."""
    timeouts = Timeouts(body=1.0, bytes_per_second=bytes_per_second)

    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server), timeouts=timeouts) as client:
            server.stream(PATH, [b"slowly"] * 8, every_seconds=0.2)
            if arrives:
                assert await client.get(PATH) == b"slowly" * 8
            else:
                with pytest.raises(ServerUnreachableError, match="no answer in time") as broken:
                    await client.get(PATH)
                assert broken.value.begun

    asyncio.run(main())


def server_context() -> ssl.SSLContext:
    """A server named api.test that asks for a client certificate, and takes none for an answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem", TLS / "server-key.pem")
    context.load_verify_locations(TLS / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.mark.parametrize(
    ("trust", "trusted"),
    [
        pytest.param(TlsTrust(TLS / "ca.pem", "api.test"), True, id="authority in a file"),
        pytest.param(TlsTrust((TLS / "ca.pem").read_bytes(), "api.test"), True, id="authority inline"),
        pytest.param(TlsTrust(TLS / "ca.pem"), False, id="another name"),
        pytest.param(TlsTrust(None, "api.test"), False, id="another authority"),
        pytest.param(TlsTrust(insecure=True), True, id="anyone"),
    ],
)
def test_which_servers_are_believed(fake_api_server: Servers, trust: TlsTrust, trusted: bool) -> None:
    async def main() -> None:
        async with fake_api_server(server_context()) as server, ApiClient(access(server, trust=trust)) as client:
            server.reply(PATH, {})
            if trusted:
                assert await client.get(PATH) == b"{}"
            else:
                with pytest.raises(ServerUnreachableError, match="certificate"):
                    await client.get(PATH)

    asyncio.run(main())


@pytest.mark.parametrize("content", [b"", b"\n", b"-----BEGIN CERTIFICATE-----\n"], ids=["empty", "blank", "half"])
def test_an_authority_file_that_is_empty_for_a_moment_never_means_the_systems(
    fake_api_server: Servers, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the system trusts the server's authority, so that taking its certificates would be noticed."""
    authority = tmp_path / "ca.crt"
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))

    async def main() -> None:
        async with fake_api_server(server_context()) as server:
            for _ in range(3):
                server.reply(PATH, {})
            async with ApiClient(access(server, trust=TlsTrust(None, "api.test"))) as client:
                assert await client.get(PATH) == b"{}", "the system's authorities do for this server"
            async with ApiClient(access(server, trust=TlsTrust(authority, "api.test"))) as client:
                authority.write_bytes(content)
                with pytest.raises(CredentialsError, match=f"certificate authority file {authority}: "):
                    await client.get(PATH)
                authority.write_bytes((TLS / "ca.pem").read_bytes())
                assert await client.get(PATH) == b"{}"
                authority.write_bytes(content)
                with pytest.raises(CredentialsError):
                    await client.get(PATH)

    asyncio.run(main())


class Proxy:
    """An HTTP proxy that says which lines it was sent first. It connects every tunnel to `target`."""

    def __init__(self, target: str) -> None:
        self.heads: list[str] = []
        self._target = target.rpartition("//")[2].rpartition(":")
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://u:secret@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        back, forth = await asyncio.open_connection(self._target[0], int(self._target[2]))
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            forth.write(head)
        await asyncio.gather(pump(reader, forth), pump(back, writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
    writer.close()


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_proxy_is_asked_for_a_tunnel_or_for_the_url(fake_api_server: Servers, encrypted: bool) -> None:
    """The name in the certificate is the API server's; whose credentials the proxy wants is in its URL."""

    async def main() -> None:
        async with fake_api_server(server_context() if encrypted else None) as server, Proxy(server.url) as proxy:
            trust = TlsTrust(TLS / "ca.pem", "api.test") if encrypted else TlsTrust()
            place = "api.corp.example:6443"
            asked = ClusterAccess(
                f"http{'s' if encrypted else ''}://{place}", trust, FixedCredential.token("t"), proxy.url
            )
            server.reply(PATH, {"ok": True})
            server.stream(PATH, [b"piece"])
            async with ApiClient(asked) as client:
                assert await client.get(PATH) == b'{"ok": true}'
                async with client.stream(PATH, ()) as pieces:
                    assert b"".join([piece async for piece in pieces]) == b"piece"
                first = proxy.heads[0]
                line = f"CONNECT {place} HTTP/1.1" if encrypted else f"GET http://{place}{PATH} HTTP/1.1"
                assert first.startswith(line)
                assert "Proxy-Authorization: Basic" in first
                assert ("Bearer" in first) is not encrypted
                assert tokens_of(server)[0] == "Bearer t"
            gone = structs.replace(asked, proxy="http://u:secret@127.0.0.1:1")
            async with ApiClient(gone) as client:
                with pytest.raises(ServerUnreachableError, match=r"through http://u:\*\*\*@127.0.0.1:1: ") as caught:
                    await client.get(PATH)
                assert "secret" not in str(caught.value)

    asyncio.run(main())


def test_an_answer_beyond_the_bound_is_refused_and_its_connection_closed(fake_api_server: Servers) -> None:
    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server), body_limit=100_000) as client:
            server.reply(PATH, b"x" * 100_000)
            assert len(await client.get(PATH)) == 100_000
            server.stream(PATH, [b"x" * 60_000] * 100, end="hang")
            with pytest.raises(OversizedError, match="more than 100000 bytes"):
                await client.get(PATH)
            server.reply(PATH, b"x" * 5_000_000, 500)
            with pytest.raises(ServerFailedError, match=r"^500: x+$") as caught:
                await client.get(PATH)
            assert len(str(caught.value)) < 300

    asyncio.run(main())


def test_a_compressed_answer_is_not_unpacked(fake_api_server: Servers) -> None:
    """A megabyte would become a gigabyte."""

    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server)) as client:
            for coding in ("gzip", "deflate", "br"):
                server.reply(PATH, gzip.compress(b"{}" * 500_000), headers={"Content-Encoding": coding})
                with pytest.raises(MalformedAnswerError, match="was not asked for"):
                    await client.get(PATH)
            server.reply(PATH, b"{}", headers={"Content-Encoding": "identity"})
            assert await client.get(PATH) == b"{}"
            assert all(headers["Accept-Encoding"] == "identity" for _, _, headers in server.requests)

    asyncio.run(main())


def test_a_rotated_client_certificate_is_shown_on_the_next_request(fake_api_server: Servers, tmp_path: Path) -> None:
    certificate, key = tmp_path / "client.pem", tmp_path / "client-key.pem"

    async def main() -> None:
        trust = TlsTrust(TLS / "ca.pem", "api.test")
        source = ClientCertificate(FixedCredential(), certificate, key)
        async with (
            fake_api_server(server_context()) as server,
            ApiClient(access(server, source, trust=trust)) as client,
        ):
            for name in ("client", "client", "second"):
                certificate.write_bytes((TLS / f"{name}.pem").read_bytes())
                key.write_bytes((TLS / f"{name}-key.pem").read_bytes())
                server.reply(PATH, {})
                await client.get(PATH)
            assert server.peers == ["node-agent", "node-agent", "second"]

    asyncio.run(main())


def test_a_context_is_made_once_and_leaves_no_file_open() -> None:
    pair = ((TLS / "client.pem").read_bytes(), (TLS / "client-key.pem").read_bytes())
    contexts = TlsContexts(TlsTrust(TLS / "ca.pem"))
    before = len(os.listdir("/proc/self/fd"))
    assert contexts.context(pair) is contexts.context(pair)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_token_that_no_header_can_have_is_not_sent(fake_api_server: Servers, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a\nX-Forged: b")

    async def main() -> None:
        async with fake_api_server() as server, ApiClient(access(server, TokenFile(tmp_path / "token"))) as client:
            with pytest.raises(CredentialsError, match="a character that no token can have"):
                await client.get(PATH)
            assert server.requests == []

    asyncio.run(main())


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "a" * 300])
def test_a_name_that_no_host_can_have_is_not_reached(host: str) -> None:
    async def main() -> None:
        async with ApiClient(ClusterAccess(f"http://{host}:1", TlsTrust(), FixedCredential())) as client:
            with pytest.raises(ServerUnreachableError):
                await client.get(PATH)

    asyncio.run(main())


@pytest.mark.parametrize("rests", [True, False])
def test_bytes_that_arrive_during_a_pause_are_one_piece(fake_api_server: Servers, rests: bool) -> None:
    said = [f"{number};".encode() for number in range(200)]

    async def main() -> list[bytes]:
        async with fake_api_server() as server, ApiClient(access(server)) as client:
            server.stream(PATH, said, every_seconds=0.002)
            async with client.stream(PATH, (), lambda size: 0.1 if rests else 0.0) as pieces:
                return [piece async for piece in pieces]

    arrived = asyncio.run(main())
    assert b"".join(arrived) == b"".join(said)
    assert (len(arrived) < len(said) / 4) is rests
