"""Requests to the API server of a lab, for callers that block, from whichever network namespace it is reached from."""

import asyncio
import base64
import json
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from msgspec.structs import replace

from nodeagent.lab.net.network_namespaces import LabError, inside
from nodeagent.proxy.source.client.api_client import JSON, READY_PATH, ApiClient, Timeouts
from nodeagent.proxy.source.client.api_errors import (
    CredentialsError,
    KubeconfigError,
    KubeError,
    ServerUnreachableError,
    StatusError,
)
from nodeagent.proxy.source.client.credentials import Credential, FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig
from nodeagent.proxy.source.client.proxy import DEFAULT_PORTS
from nodeagent.proxy.source.client.server_choice import Failover, Server
from nodeagent.proxy.source.client.tls import TlsTrust

TIMEOUTS = Timeouts(connect=5.0, headers=30.0, body=30.0)
AMONG_SEVERAL = Failover(connect=4.0, answer=4.0)
AWAY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""What a server says for which another one may do better."""

Document = dict[str, Any]


class ApiRefused(LabError):
    """An answer that is no success. status: HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Access:
    """Servers of one cluster, whom to trust, who one is. Raises LabError for what cannot be used."""

    def __init__(self, cluster: ClusterAccess) -> None:
        self.cluster: Final = cluster

    @classmethod
    def read(cls, path: Path) -> "Access":
        """What the current context of a kubeconfig says, but for a proxy: none is between a lab and its servers."""
        try:
            return cls(replace(load_kubeconfig(path), proxy=None))
        except KubeconfigError as error:
            raise LabError(str(error)) from error

    def at(self, url: str, *others: str) -> "Access":
        """The same, where the server has another URL, or there are several of equal standing."""
        servers = tuple(Server(other) for other in others)
        return Access(replace(self.cluster, server=url.rstrip("/"), others=servers))

    @property
    def url(self) -> str:
        return self.cluster.server

    @property
    def secure(self) -> bool:
        return self.url.startswith("https://")

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        if not parts.hostname:
            raise LabError(f"{self.url!r} is no URL of a server")
        return parts.hostname, parts.port or DEFAULT_PORTS["https" if self.secure else "http"]

    @property
    def server_name(self) -> str:
        """Whom the server's certificate is to be for."""
        return self.cluster.trust.server_name or self.place[0]

    def credential(self) -> Credential:
        """Who one is, as of now."""

        async def current() -> Credential:
            return await self.cluster.credentials.current()

        try:
            return inside(None, lambda: asyncio.run(current()))
        except CredentialsError as error:
            raise LabError(str(error)) from error

    def moved_to(self, host: str, port: int, name: str = "") -> Document:
        """A kubeconfig for the same server at another place, with everything in it that the files have.

        name: whom the server's certificate is to be for; without it, for the place where it was.
        """
        trust, credential = self.cluster.trust, self.credential()
        cluster: Document = {"server": f"{urlsplit(self.url).scheme}://{host}:{port}{urlsplit(self.url).path}"}
        if self.secure:
            cluster["tls-server-name"] = name or self.server_name
        if trust.insecure:
            cluster["insecure-skip-tls-verify"] = True
        elif trust.authority is not None:
            authority = trust.authority.read_bytes() if isinstance(trust.authority, Path) else trust.authority
            cluster["certificate-authority-data"] = _encoded(authority)
        user: Document = _spelled(credential.authorization or "")
        if credential.client_certificate is not None:
            certificate, key = credential.client_certificate
            user |= {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "lab", "user": user}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        }


def anonymous(url: str, *others: str) -> Access:
    """Servers that ask for nothing."""
    return Access(ClusterAccess(url, TlsTrust(), FixedCredential())).at(url, *others)


def _spelled(authorization: str) -> Document:
    """What a kubeconfig's user has for a header."""
    scheme, _, rest = authorization.partition(" ")
    if scheme == "Basic":
        username, _, password = base64.b64decode(rest).decode().partition(":")
        return {"username": username, "password": password}
    return {"token": rest} if rest else {}


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


class Api:
    """The agent's client, for one thread that waits for each answer. Of several servers the first is the one in use until
    it fails. Raises ApiRefused for an answer that is no success, LabError when no answer arrives.

    namespace: where connections come from; None for the caller's. A context manager, or `close` it.
    """

    def __init__(self, access: Access, namespace: str | None = None, timeouts: Timeouts = TIMEOUTS) -> None:
        self._namespace = namespace
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._client = ApiClient(
            access.cluster,
            user_agent="nodeagent-lab",
            timeouts=timeouts,
            failover=AMONG_SEVERAL,
            chance=lambda: 0.0,  # leaves the servers in their order
        )
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """No more requests."""
        inside(None, self._close)

    def call(self, method: str, path: str, body: Document | None = None, *, content_type: str = JSON) -> Document:
        """The answer's document. path: with its query. A request is sent once more where that may
        help, so that one that nobody answered may be carried out twice."""
        try:
            # In a thread of its own: this one may have a loop that runs, and shall stay in its namespace.
            answer = inside(self._namespace, lambda: self._runner.run(self._answer(method, path, body, content_type)))
        except StatusError as error:
            raise ApiRefused(error.code, f"{method} {path}: {error}") from error
        except KubeError as error:
            raise LabError(str(error)) from error
        try:
            document: Document = json.loads(answer)
        except ValueError:
            return {"message": answer.decode(errors="replace")}
        return document

    def create(self, path: str, body: Document) -> None:
        """POST; one that is there already is fine."""
        self._call_but("POST", path, body, fine=HTTPStatus.CONFLICT)

    def delete(self, path: str, body: Document | None = None) -> None:
        """DELETE; one that is gone already is fine."""
        self._call_but("DELETE", path, body, fine=HTTPStatus.NOT_FOUND)

    def _call_but(self, method: str, path: str, body: Document | None, *, fine: int) -> None:
        try:
            self.call(method, path, body)
        except ApiRefused as refusal:
            if refusal.status != fine:
                raise

    async def _answer(self, method: str, path: str, body: Document | None, content_type: str) -> bytes:
        is_kept = self._is_open
        if not is_kept:
            await self._client.__aenter__()
            self._is_open = True
        parts = urlsplit(path)
        query = parse_qsl(parts.query, keep_blank_values=True)
        send = partial(self._client.request_json, method, parts.path, body, parameters=query, content_type=content_type)
        try:
            return await send()
        except (ServerUnreachableError, StatusError) as error:
            if not self._is_worth_another(error, is_kept):
                raise
        if method != "GET" and self._client.has_several_servers:
            with suppress(KubeError):
                await self._client.get(READY_PATH)  # which goes on to a server that is ready
        return await send()

    def _is_worth_another(self, error: ServerUnreachableError | StatusError, is_kept: bool) -> bool:
        if isinstance(error, StatusError):
            return self._client.has_several_servers and error.code in AWAY
        # A connection that was kept may have ended when nobody looked.
        is_stale = is_kept and error.sent and not isinstance(error.__cause__, TimeoutError)
        return self._client.has_several_servers or is_stale

    def _close(self) -> None:
        if self._is_open:
            self._runner.run(self._client.__aexit__(None, None, None))
            self._is_open = False
        self._runner.close()
