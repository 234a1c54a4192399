"""An API server that gives objects exactly as they were written: without the defaults that manifests and real servers fill in.

It fails on demand: with a status, another certificate, another time, or not at all there.
"""

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from nodeagent.lab.net.network_namespaces import inside

PLURALS = {
    "Service": "services",
    "EndpointSlice": "endpointslices",
    "Node": "nodes",
    "ServiceCIDR": "servicecidrs",
    "Pod": "pods",
}
PLACE = ("127.0.0.1", 0)
KINDS = {plural: kind for kind, plural in PLURALS.items()}


class _Handler(BaseHTTPRequestHandler):
    """Lists what the server has of a kind; a watch is refused its first events, or sees nothing happen."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        *_, resource = parts.path.split("/")
        server = self.server
        assert isinstance(server, PlainServer)
        if (refusal := server.refusals.get(resource) or server.refusals.get("")) is not None:
            server.refused[resource] += 1
            self._fail(*refusal)
        elif resource in PLURALS.values() and "watch" not in asked:
            items = [one for one in server.objects if PLURALS[one["kind"]] == resource]
            _, _, group = parts.path.partition("/api/" if parts.path.startswith("/api/") else "/apis/")
            version = group.rpartition("/")[0]
            listed = {"kind": f"{KINDS[resource]}List", "apiVersion": version}
            self._answer(200, {**listed, "metadata": {"resourceVersion": "1"}, "items": items})
        elif resource in PLURALS.values() and "sendInitialEvents" not in asked:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            server.interrupted.wait()
            self.close_connection = True
        elif resource in PLURALS.values():
            self._fail(422, "Invalid", "sendInitialEvents is forbidden")
        elif (pod := self._pod(server.objects, parts.path)) is not None:
            self._answer(200, pod)
        elif parts.path == "/apis/discovery.k8s.io/v1":
            served = [
                {"name": "endpointslices", "namespaced": True, "kind": "EndpointSlice", "verbs": ["list", "watch"]}
            ]
            self._answer(200, {"kind": "APIResourceList", "groupVersion": "discovery.k8s.io/v1", "resources": served})
        else:
            self._fail(404, "NotFound", "nothing here")

    def _pod(self, objects: list[dict[str, Any]], path: str) -> dict[str, Any] | None:
        """The one Pod that a path names."""
        for one in objects:
            meta = one["metadata"]
            if one["kind"] == "Pod" and path == f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}":
                return one
        return None

    def _fail(self, code: int, reason: str, message: str) -> None:
        reported = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        self._answer(code, reported | {"reason": reason, "message": message, "code": code})

    def _answer(self, code: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The header Date."""
        server = self.server
        assert isinstance(server, PlainServer)
        return super().date_time_string(int((timestamp or time.time()) + server.ahead_seconds))

    def log_message(self, *_: object) -> None:
        """Nothing."""


class PlainServer(ThreadingHTTPServer):
    """refusals: resource → status, reason and message; of "" for all. refused: how often each was. context: of TLS; its certificate may be changed. ahead_seconds: of
    its clock. interrupted: ends every watch."""

    daemon_threads = True

    def __init__(
        self, objects: list[dict[str, Any]], context: ssl.SSLContext | None = None, address: tuple[str, int] = PLACE
    ) -> None:
        super().__init__(address, _Handler)
        self.objects = objects
        self.context = context
        self.refusals: dict[str, tuple[int, str, str]] = {}
        self.refused = Counter[str]()
        self.ahead_seconds = 0.0
        self.interrupted = threading.Event()

    def interrupt(self) -> None:
        """Ends all watches: clients connect again."""
        before, self.interrupted = self.interrupted, threading.Event()
        before.set()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The handshake is in the thread of the connection, and a client that does not like the certificate is no error."""
        try:
            if self.context is not None:
                request = self.context.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients break off."""


@contextmanager
def plain_api_server(
    namespace: str,
    objects: Iterable[dict[str, Any]],
    kubeconfig: Path,
    *,
    context: ssl.SSLContext | None = None,
    **access: dict[str, Any],
) -> Iterator[PlainServer]:
    """Serves on the namespace's loopback until the block ends, and writes how to get there. access: of `cluster` and `user`, what
    the file says besides."""
    held = [{**one, "metadata": {"resourceVersion": "1", "uid": f"u{number}"} | one["metadata"]}
            for number, one in enumerate(objects)]  # fmt: skip
    server = inside(namespace, lambda: PlainServer(held, context))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    scheme = "http" if context is None else "https"
    place = {"server": f"{scheme}://127.0.0.1:{server.server_address[1]}"} | access.get("cluster", {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plain", "cluster": place}],
        "users": [{"name": "nobody", "user": access.get("user", {})}],
        "contexts": [{"name": "plain", "context": {"cluster": "plain", "user": "nobody"}}],
        "current-context": "plain",
    }
    kubeconfig.write_text(yaml.safe_dump(document))
    try:
        yield server
    finally:
        server.interrupt()
        server.shutdown()
        thread.join()
        server.server_close()
