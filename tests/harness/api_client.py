"""Requests to an API server from a member's namespace, with what a kubeconfig says: for tests that time what they do."""

import base64
import http.client
import socket
import ssl
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
import yaml

from nodeagent.lab.net.namespaces import inside

Document: TypeAlias = dict[str, Any]
"""A JSON object of the API. Its shape is the server's to check."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


class ApiRefused(Exception):
    """The server answered with an error; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class ApiClient:
    """One connection for each request, so that a restarted server is met afresh. Raises OSError and ApiRefused."""

    def __init__(self, namespace: str, kubeconfig: Path, *, timeout: float = 10.0) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        address = urlsplit(cluster["server"])
        self._namespace = namespace
        self._address = (str(address.hostname), int(address.port or 443))
        self._timeout = timeout
        self._headers = {"Authorization": f"Bearer {document['users'][0]['user']['token']}"}
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._trust = ssl.create_default_context(cadata=authority)

    def call(self, method: str, path: str, body: Document | None = None, *, content_type: str = JSON) -> Document:
        """The answer's document."""
        connection = http.client.HTTPSConnection(*self._address, timeout=self._timeout, context=self._trust)
        # A socket stays in the namespace of the thread that made it.
        connection.sock = self._trust.wrap_socket(
            inside(self._namespace, lambda: socket.create_connection(self._address, self._timeout)),
            server_hostname=self._address[0],
        )
        try:
            sent = msgspec.json.encode(body) if body is not None else None
            connection.request(method, path, sent, {**self._headers, "Content-Type": content_type})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiRefused(response.status, text.decode(errors="replace"))
        return msgspec.json.decode(text, type=Document)

    def get(self, path: str) -> Document:
        """The object or list there."""
        return self.call("GET", path)

    def create(self, path: str, body: Document) -> Document:
        """The object as the server made it in the collection at `path`."""
        return self.call("POST", path, body)

    def replace(self, path: str, body: Document) -> Document:
        """The object as the server has it now."""
        return self.call("PUT", path, body)

    def merge(self, path: str, patch: Document) -> Document:
        """The object after an RFC 7386 merge patch."""
        return self.call("PATCH", path, patch, content_type=MERGE_PATCH)

    def delete(self, path: str, *, grace_seconds: int | None = None) -> None:
        """Delete the object; one that is not there is fine."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except ApiRefused as error:
            if error.status != 404:
                raise
