"""What expires is announced a week before with its cure, has a metric, and is no longer a problem once it is renewed.

The certificates are openssl's, the connections are real; only the time of day is handed in.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from nodeagent.model.problem import Problem
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credential_watch import LOOK_SECONDS, CredentialWatch
from nodeagent.proxy.source.client.credentials import ClientCertificate, CredentialSource, FixedCredential, TokenFile
from nodeagent.proxy.source.client.exec_plugin import ExecCommand, ExecPlugin
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.runtime.certificates import certificate, key, make_authority, make_certificate

Servers = Callable[..., AbstractAsyncContextManager[Any]]
PATH = "/api/v1/services"
YEAR = timedelta(days=365)
NAMES = "subjectAltName=DNS:api.test"
V1 = "client.authentication.k8s.io/v1"


class Watched:
    """A watch with a clock that is set by hand, and what it reported last."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        self.problems: list[Problem] = []
        self.ends: dict[str, datetime] = {}

    def over(self, access: ClusterAccess, client: ApiClient) -> CredentialWatch:
        return CredentialWatch(
            access, client.shown_certificates, now=lambda: self.now, report=self.report, show=self.show
        )

    def report(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)

    def show(self, ends: Mapping[str, datetime]) -> None:
        self.ends = dict(ends)

    @property
    def reasons(self) -> dict[str, str]:
        return {problem.subject: problem.reason for problem in self.problems}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    make_authority(tmp_path, days=3650)
    make_certificate(tmp_path, "server", "/CN=api.test", NAMES)
    make_certificate(tmp_path, "client", "/O=system:nodes/CN=node")
    return tmp_path


def server_context(directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate(directory, "ca"))
    context.load_cert_chain(certificate(directory, "server"), key(directory, "server"))
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def in_a_cluster(
    servers: Servers,
    directory: Path,
    source: CredentialSource,
    story: Callable[[Watched, CredentialWatch, ApiClient, Any, ssl.SSLContext], Awaitable[None]],
) -> None:
    async def main() -> None:
        context, watched = server_context(directory), Watched()
        async with servers(context) as server:
            access = ClusterAccess(server.url, TlsTrust(certificate(directory, "ca"), "api.test"), source)
            async with ApiClient(access) as client:
                server.reply(PATH, {}, headers={"Connection": "close"})
                await client.get(PATH)
                watch = watched.over(access, client)
                await watch.look()
                await story(watched, watch, client, server, context)

    asyncio.run(main())


@contextmanager
def closing_task(work: Coroutine[Any, Any, None]) -> Iterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()


def client_certificate(directory: Path) -> ClientCertificate:
    return ClientCertificate(FixedCredential(), certificate(directory, "client"), key(directory, "client"))


def test_certificates_are_announced_a_week_before_and_gone_when_renewed(fake_api_server: Servers, made: Path) -> None:
    mine, servers = "client certificate", "certificate of the API server api.test"

    async def story(
        watched: Watched, watch: CredentialWatch, client: ApiClient, server: Any, context: ssl.SSLContext
    ) -> None:
        began = watched.now
        assert watched.problems == []
        assert watched.ends.keys() == {mine, servers, "certificate authority"}
        assert abs(watched.ends[mine] - began - YEAR) < timedelta(hours=1)

        watched.now = began + YEAR - timedelta(days=8)
        await watch.look()
        assert watched.problems == []
        watched.now = began + YEAR - timedelta(days=6)
        await watch.look()
        assert watched.reasons == {mine: "CredentialExpires", servers: "CredentialExpires"}
        assert all("renew it" in problem.detail for problem in watched.problems)
        for problem in watched.problems:
            assert f"it expires at {watched.ends[problem.subject]:%Y-%m-%dT%H:%M:%SZ}" in problem.detail

        make_certificate(made, "client", "/O=system:nodes/CN=node", days=800)
        await watch.look()
        assert watched.reasons == {servers: "CredentialExpires"}

        make_certificate(made, "server", "/CN=api.test", NAMES, days=800)
        context.load_cert_chain(certificate(made, "server"), key(made, "server"))
        await watch.look()
        assert watched.reasons == {servers: "CredentialExpires"}, "seen with the next connection only"
        server.reply(PATH, {}, headers={"Connection": "close"})
        await client.get(PATH)
        await watch.look()
        assert watched.problems == []
        assert watched.ends[servers] - began > 2 * YEAR

        watched.now = began + 3 * YEAR
        await watch.look()
        assert watched.reasons == {mine: "CredentialExpired", servers: "CredentialExpired"}

    in_a_cluster(fake_api_server, made, client_certificate(made), story)


def test_a_certificate_that_a_server_shows_is_looked_at_at_once(fake_api_server: Servers, made: Path) -> None:
    name = "certificate of the API server api.test"

    async def story(
        watched: Watched, watch: CredentialWatch, client: ApiClient, server: Any, context: ssl.SSLContext
    ) -> None:
        watched.now += timedelta(days=370)
        with closing_task(watch.run()):
            for days, reason in ((400, None), (365, "CredentialExpired"), (400, None)):
                make_certificate(made, "server", "/CN=api.test", NAMES, days=days)
                context.load_cert_chain(certificate(made, "server"), key(made, "server"))
                server.reply(PATH, {}, headers={"Connection": "close"})
                await client.get(PATH)
                async with asyncio.timeout(LOOK_SECONDS / 2):
                    while watched.reasons.get(name) != reason:  # noqa: ASYNC110 - only the metrics hear of a look without a problem
                        await asyncio.sleep(0.01)

    in_a_cluster(fake_api_server, made, client_certificate(made), story)


def test_an_authority_that_ends_is_announced_and_a_bundle_with_the_next_one_ends_that(
    fake_api_server: Servers, made: Path
) -> None:
    async def story(
        watched: Watched, watch: CredentialWatch, client: ApiClient, server: Any, context: ssl.SSLContext
    ) -> None:
        watched.now += timedelta(days=3645)
        await watch.look()
        assert watched.reasons["certificate authority"] == "CredentialExpires"
        next_one = made / "next"
        next_one.mkdir()
        make_authority(next_one, "/CN=next", days=7300)
        make_certificate(next_one, "server", "/CN=api.test", NAMES)
        both = certificate(made, "ca").read_bytes() + certificate(next_one, "ca").read_bytes()
        certificate(made, "ca").write_bytes(both)
        await watch.look()
        assert "certificate authority" not in watched.reasons
        # Both authorities are trusted meanwhile, whichever the server's certificate is from.
        server.reply(PATH, {}, headers={"Connection": "close"})
        await client.get(PATH)
        context.load_cert_chain(certificate(next_one, "server"), key(next_one, "server"))
        server.reply(PATH, {}, headers={"Connection": "close"})
        await client.get(PATH)

    in_a_cluster(fake_api_server, made, client_certificate(made), story)


def test_a_bound_token_that_nobody_renews_is_announced_and_gone_when_it_is_renewed(
    fake_api_server: Servers, made: Path
) -> None:
    path = made / "token"

    def write(begins: datetime) -> None:
        path.write_text(jwt.encode({"iat": begins, "exp": begins + timedelta(hours=1)}, "k" * 32, "HS256"))

    write(datetime.now(UTC))

    async def story(
        watched: Watched, watch: CredentialWatch, client: ApiClient, server: Any, context: ssl.SSLContext
    ) -> None:
        assert "token" in watched.ends
        watched.now += timedelta(minutes=50)
        await watch.look()
        assert watched.problems == [], "the kubelet renews it about now"
        watched.now += timedelta(minutes=6)
        await watch.look()
        assert watched.reasons == {"token": "CredentialExpires"}
        watched.now += timedelta(minutes=6)
        await watch.look()
        assert watched.reasons == {"token": "CredentialExpired"}
        write(watched.now)
        await watch.look()
        assert watched.problems == []
        path.unlink()
        await watch.look()
        assert watched.problems == [], "a file that cannot be read is said by the next request"

    in_a_cluster(fake_api_server, made, TokenFile(path), story)


def test_the_credential_of_a_plugin_is_a_problem_only_when_there_is_no_other(
    fake_api_server: Servers, made: Path
) -> None:
    (made / "until").write_text(f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}")
    script = (
        f'echo run >> runs; test ! -e broken || exit 1; echo \'{{"apiVersion":"{V1}","kind":"ExecCredential",'
        '"status":{"token":"t","expirationTimestamp":"\'$(cat until)\'"}}\''
    )
    clock = [datetime.now(UTC)]
    command = ExecCommand(V1, "/bin/sh", ("-c", script), {}, made)

    async def story(
        watched: Watched, watch: CredentialWatch, client: ApiClient, server: Any, context: ssl.SSLContext
    ) -> None:
        what = "credential of the exec plugin"
        assert watched.ends[what] - clock[0] > timedelta(minutes=59)
        clock[0] = watched.now = watched.now + timedelta(minutes=59)
        await watch.look()
        assert watched.problems == []
        (made / "broken").touch()
        clock[0] = watched.now = watched.now + timedelta(minutes=2)
        await watch.look()
        assert watched.reasons == {what: "CredentialExpired"}
        (made / "broken").unlink()
        (made / "until").write_text(f"{clock[0] + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}")
        await watch.look()
        assert watched.problems == []
        server.reply(PATH, {})
        await client.get(PATH)
        assert (made / "runs").read_text().count("run") == 3, "at first, once without success, and again"

    in_a_cluster(fake_api_server, made, ExecPlugin(command, now=lambda: clock[0]), story)
