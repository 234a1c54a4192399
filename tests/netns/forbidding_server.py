"""An API server at 127.0.0.1:8001 that lists no Services and no EndpointSlices and forbids everything else."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

LISTED = ("/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices")
FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "this server forbids it"}
REFUSED = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "no streaming lists"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # the name is http.server's
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if url.path == "/apis/discovery.k8s.io/v1":
            self.answer(200, {"kind": "APIResourceList"})
        elif url.path not in LISTED:
            self.answer(403, FORBIDDEN)
        elif "sendInitialEvents" in query:
            self.answer(422, REFUSED)
        elif "watch" in query:
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            threading.Event().wait()
        else:
            self.answer(200, {"metadata": {"resourceVersion": "5"}, "items": []})

    def do_POST(self) -> None:
        self.answer(403, FORBIDDEN)

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 8001), Handler)
server.daemon_threads = True
print("listens", flush=True)
server.serve_forever()
