"""Requests to the API server of a lab, by way of a socket that somebody else opens (in another namespace)."""

import base64
import http.client
import json
import socket
import ssl
import tempfile
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

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
    """What a kubeconfig's current context says: a server, whom to trust, who one is. Raises LabError."""

    def __init__(self, document: Document, directory: Path) -> None:
        try:
            context = _named(document, "contexts", document["current-context"])["context"]
            self.cluster: Document = _named(document, "clusters", context["cluster"])["cluster"]
            self.user: Document = _named(document, "users", context["user"])["user"] if context.get("user") else {}
            self.url = str(self.cluster["server"]).rstrip("/")
        except (KeyError, TypeError) as error:
            raise LabError(f"the kubeconfig has no usable current context: {error!r}") from error
        self._directory = directory

    @classmethod
    def read(cls, path: Path) -> "Access":
        """The current context of a file."""
        try:
            document = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise LabError(f"kubeconfig {path}: {error}") from error
        return cls(document, path.parent)

    @property
    def secure(self) -> bool:
        return self.url.startswith("https://")

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        if not parts.hostname:
            raise LabError(f"{self.url!r} is no URL of a server")
        return parts.hostname, parts.port or (443 if self.secure else 80)

    @property
    def server_name(self) -> str:
        """Whom the server's certificate is to be for."""
        return str(self.cluster.get("tls-server-name") or self.place[0])

    def authority(self) -> str | None:
        """PEM; None to trust what the system trusts."""
        return self._text(self.cluster, "certificate-authority")

    def token(self) -> str:
        """Empty when there is none."""
        if path := self.user.get("tokenFile"):
            return (self._directory / str(path)).read_text().strip()
        return str(self.user.get("token") or "")

    def tls(self) -> ssl.SSLContext:
        """How to speak TLS with it."""
        context = ssl.create_default_context(cadata=self.authority())
        if self.cluster.get("insecure-skip-tls-verify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate, key = (self._text(self.user, name) for name in ("client-certificate", "client-key"))
        if certificate and key:
            with tempfile.NamedTemporaryFile("w", prefix="nodeagent-lab-") as file:
                file.write(certificate + "\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def _text(self, section: Document, name: str) -> str | None:
        if data := section.get(f"{name}-data"):
            return base64.b64decode(data).decode()
        path = section.get(name)
        return (self._directory / str(path)).read_text() if path else None

    def moved_to(self, host: str, port: int) -> Document:
        """A kubeconfig for the same server at another place, with everything in it that the files have."""
        cluster: Document = {"server": f"{urlsplit(self.url).scheme}://{host}:{port}{urlsplit(self.url).path}"}
        if self.secure:
            cluster["tls-server-name"] = self.server_name
        if self.cluster.get("insecure-skip-tls-verify"):
            cluster["insecure-skip-tls-verify"] = True
        elif authority := self.authority():
            cluster["certificate-authority-data"] = _encoded(authority)
        user: Document = {"token": self.token()} if self.token() else {}
        for name in ("client-certificate", "client-key"):
            if text := self._text(self.user, name):
                user[f"{name}-data"] = _encoded(text)
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
    cluster = {"name": "lab", "cluster": {"server": url}}
    context = {"name": "lab", "context": {"cluster": "lab"}}
    return Access({"clusters": [cluster], "contexts": [context], "current-context": "lab"}, Path())


def _named(document: Document, kind: str, name: str) -> Document:
    for entry in document[kind]:
        if entry["name"] == name:
            found: Document = entry
            return found
    raise KeyError(f"{kind}: {name}")


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Api:
    """One connection, kept. Raises ApiRefused for an answer that is no success, LabError when there is none."""

    def __init__(self, access: Access, connect: Connect) -> None:
        self._access = access
        self._connect = connect
        self._context = access.tls() if access.secure else None
        self._token = access.token()
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self, method: str, path: str, body: Document | None = None, *, content_type: str = "application/json"
    ) -> Document:
        """The answer's document."""
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "nodeagent-lab"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
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
