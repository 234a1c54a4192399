"""Requests to the API server of a lab, by way of a socket that somebody else opens (in another namespace)."""

import asyncio
import base64
import http.client
import json
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from nodeagent.kube.credentials import Credential, CredentialSource, FixedCredential
from nodeagent.kube.errors import CredentialsError, KubeconfigError
from nodeagent.kube.kubeconfig import ClusterAccess, load_kubeconfig
from nodeagent.kube.proxy import DEFAULT_PORTS
from nodeagent.kube.tls import TlsContexts, TlsTrust
from nodeagent.lab.net.namespaces import LabError

TIMEOUT = 15.0

Document = dict[str, Any]
Connect = Callable[[str, int], socket.socket]


class ApiRefused(LabError):
    """An answer that is no success. status: HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Access:
    """A server, whom to trust, who one is. Raises LabError for what cannot be used."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access

    @classmethod
    def read(cls, path: Path) -> "Access":
        """What the current context of a kubeconfig says."""
        try:
            return cls(load_kubeconfig(path))
        except KubeconfigError as error:
            raise LabError(str(error)) from error

    def at(self, url: str) -> "Access":
        """The same, where the server has another URL."""
        return Access(replace(self._access, server=url.rstrip("/")))

    @property
    def url(self) -> str:
        return self._access.server

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
        return self._access.trust.server_name or self.place[0]

    def credential(self) -> Credential:
        """Who one is, as of now."""
        with ThreadPoolExecutor(1) as elsewhere:  # this thread may have a loop that runs
            try:
                return elsewhere.submit(asyncio.run, _current(self._access.credentials)).result()
            except CredentialsError as error:
                raise LabError(str(error)) from error

    def tls(self, credential: Credential) -> ssl.SSLContext:
        """How to speak TLS with it."""
        try:
            return TlsContexts(self._access.trust).context(credential.client_certificate)
        except CredentialsError as error:
            raise LabError(str(error)) from error

    def moved_to(self, host: str, port: int) -> Document:
        """A kubeconfig for the same server at another place, with everything in it that the files have."""
        trust, credential = self._access.trust, self.credential()
        cluster: Document = {"server": f"{urlsplit(self.url).scheme}://{host}:{port}{urlsplit(self.url).path}"}
        if self.secure:
            cluster["tls-server-name"] = self.server_name
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


def anonymous(url: str) -> Access:
    """A server that asks for nothing."""
    return Access(ClusterAccess(url.rstrip("/"), TlsTrust(), FixedCredential()))


async def _current(source: CredentialSource) -> Credential:
    return await source.current()


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
    """One connection, kept. Raises ApiRefused for an answer that is no success, LabError when there is none."""

    def __init__(self, access: Access, connect: Connect) -> None:
        self._access = access
        self._connect = connect
        self._credential = access.credential()
        self._context = access.tls(self._credential) if access.secure else None
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self, method: str, path: str, body: Document | None = None, *, content_type: str = "application/json"
    ) -> Document:
        """The answer's document."""
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "nodeagent-lab"}
        if self._credential.authorization is not None:
            headers["Authorization"] = self._credential.authorization
        data = json.dumps(body).encode() if body is not None else None
        kept = self._connection is not None
        try:
            status, text = self._exchange(method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept:
                raise LabError(f"{self._access.url}: {error or type(error).__name__}") from error
            return self.call(method, path, body, content_type=content_type)  # a kept connection may have gone stale
        try:
            document: Document = json.loads(text)
        except ValueError:
            document = {"message": text.decode(errors="replace")}
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise ApiRefused(status, f"{method} {path}: {status} {document.get('message')}")
        return document

    def _exchange(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = self._connection or self._open()
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return response.status, response.read()

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._access.place
        opened = self._connect(host, port)
        opened.settimeout(TIMEOUT)
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        if self._context is not None:
            opened = self._context.wrap_socket(opened, server_hostname=self._access.server_name)
        connection.sock = opened
        self._connection = connection
        return connection

    def close(self) -> None:
        """The next call opens a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
