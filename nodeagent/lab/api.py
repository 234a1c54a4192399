"""Requests to the API server of a lab, for callers that block, sent from a chosen network namespace."""

import asyncio
import base64
import json
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from msgspec.structs import replace

from nodeagent.lab.net.network_namespaces import LabError, inside
from nodeagent.proxy.source.client import api_errors
from nodeagent.proxy.source.client.api_client import JSON, READY_PATH, ApiClient, Timeouts
from nodeagent.proxy.source.client.credentials import Credential, FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig
from nodeagent.proxy.source.client.proxy import DEFAULT_PORTS
from nodeagent.proxy.source.client.server_choice import Failover, Server
from nodeagent.proxy.source.client.tls import TlsTrust

TIMEOUTS = Timeouts(connect=5.0, headers=30.0, body=30.0)
FAILOVER = Failover(connect=4.0, answer=4.0)
UNAVAILABLE = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""Statuses after which another server may answer better."""

Document = dict[str, Any]


class ApiRefused(LabError):
    """A response that is not a success. status: the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Access:
    """The servers of a cluster, the trust in them, the client's credentials. Raises LabError for unusable ones."""

    def __init__(self, cluster: ClusterAccess) -> None:
        self.cluster: Final = cluster

    @classmethod
    def read(cls, path: Path) -> "Access":
        """Returns the current context of a kubeconfig, without its proxy: a lab reaches its servers directly."""
        try:
            return cls(replace(load_kubeconfig(path), proxy=None))
        except api_errors.KubeconfigError as error:
            raise LabError(str(error)) from error

    def at(self, url: str, *others: str) -> "Access":
        """Returns the same access with another server URL, or with several equal servers."""
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
            raise LabError(f"{self.url!r} is not the URL of a server")
        return parts.hostname, parts.port or DEFAULT_PORTS["https" if self.secure else "http"]

    @property
    def server_name(self) -> str:
        """The name that the server's certificate must have."""
        return self.cluster.trust.server_name or self.place[0]

    def credential(self) -> Credential:
        """Returns the client's present credentials. Raises LabError."""

        async def current() -> Credential:
            return await self.cluster.credentials.current()

        try:
            return inside(None, lambda: asyncio.run(current()))
        except api_errors.CredentialsError as error:
            raise LabError(str(error)) from error

    def moved_to(self, host: str, port: int, name: str = "") -> Document:
        """Returns a kubeconfig for the same server at another address, with the contents of all files in it.

        name: the name that the server's certificate must have; if empty, the present one.
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
        user: Document = _user_fields(credential.authorization or "")
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
    """Returns access to servers that need no credentials."""
    return Access(ClusterAccess(url, TlsTrust(), FixedCredential())).at(url, *others)


def _user_fields(authorization: str) -> Document:
    """Returns the user fields of a kubeconfig for an Authorization header."""
    scheme, _, rest = authorization.partition(" ")
    if scheme == "Basic":
        username, _, password = base64.b64decode(rest).decode().partition(":")
        return {"username": username, "password": password}
    return {"token": rest} if rest else {}


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


class Api:
    """The agent's client, for one thread that waits for each answer. Of several servers it uses one until that fails.
    Raises ApiRefused for a response that is not a success, and LabError if no response arrives.
    namespace: where connections start; None for the caller's. A context manager; or call `close`."""

    def __init__(self, access: Access, namespace: str | None = None, timeouts: Timeouts = TIMEOUTS) -> None:
        self._namespace = namespace
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._client = ApiClient(
            access.cluster,
            user_agent="nodeagent-lab",
            timeouts=timeouts,
            failover=FAILOVER,
            chance=lambda: 0.0,  # leaves the servers in their order
        )
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the client."""
        inside(None, self._close)

    def call(self, method: str, path: str, body: Document | None = None, *, content_type: str = JSON) -> Document:
        """Returns the document of the answer. path: with its query. A request may be sent twice if that may help, so a
        request without an answer may be carried out twice."""
        try:
            # In another thread: this one may run an event loop, and must stay in its namespace.
            answer = inside(self._namespace, lambda: self._runner.run(self._answer(method, path, body, content_type)))
        except api_errors.StatusError as error:
            raise ApiRefused(error.code, f"{method} {path}: {error}") from error
        except api_errors.KubeError as error:
            raise LabError(str(error)) from error
        try:
            document: Document = json.loads(answer)
        except ValueError:
            return {"message": answer.decode(errors="replace")}
        return document

    def create(self, path: str, body: Document) -> None:
        """Sends POST; an object that exists already is not an error."""
        self._call_accepting("POST", path, body, accepted=HTTPStatus.CONFLICT)

    def delete(self, path: str, body: Document | None = None) -> None:
        """Sends DELETE; an object that does not exist is not an error."""
        self._call_accepting("DELETE", path, body, accepted=HTTPStatus.NOT_FOUND)

    def _call_accepting(self, method: str, path: str, body: Document | None, *, accepted: int) -> None:
        try:
            self.call(method, path, body)
        except ApiRefused as refusal:
            if refusal.status != accepted:
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
        except (api_errors.ServerUnreachableError, api_errors.StatusError) as error:
            if not self._may_retry(error, is_kept):
                raise
        if method != "GET" and self._client.has_several_servers:
            with suppress(api_errors.KubeError):
                await self._client.get(READY_PATH)  # this selects a server that is ready
        return await send()

    def _may_retry(self, error: api_errors.ServerUnreachableError | api_errors.StatusError, is_kept: bool) -> bool:
        if isinstance(error, api_errors.StatusError):
            return self._client.has_several_servers and error.code in UNAVAILABLE
        # The server may have closed an idle connection.
        is_stale = is_kept and error.sent and not isinstance(error.__cause__, TimeoutError)
        return self._client.has_several_servers or is_stale

    def _close(self) -> None:
        if self._is_open:
            self._runner.run(self._client.__aexit__(None, None, None))
            self._is_open = False
        self._runner.close()
