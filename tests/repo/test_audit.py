"""`make audit` fails on a known hole of a locked release, or where nobody can be asked; a service on loopback stands for osv.dev."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKED = re.compile(r"^([a-z0-9.-]+)==(\S+) ", re.MULTILINE)
HOLE = "PYSEC-2999-1"
SECONDS = 120


class Service(ThreadingHTTPServer):
    """Answers as osv.dev's /v1/query; its only hole is one of the release `bad`."""

    daemon_threads = True

    def __init__(self, bad: tuple[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.bad = bad
        self.asked: set[tuple[str, str]] = set()


class Answer(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:  # the name is http.server's
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        release = query["package"]["name"], query["version"]
        self.server.asked.add(release)
        hole = {"id": HOLE, "modified": "2999-01-01T00:00:00Z", "summary": "anybody is let in", "affected": []}
        body = json.dumps({"vulns": [hole]} if release == self.server.bad else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def service(bad: tuple[str, str] = ("", "")) -> Iterator[Service]:
    with Service(bad) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def audit(port: int) -> subprocess.CompletedProcess[str]:
    """A make of its own, not a part of the one that runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", "audit", f"OSV=http://127.0.0.1:{port}/v1/query"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)


def locked(which: str) -> set[tuple[str, str]]:
    return set(LOCKED.findall((ROOT / "requirements" / f"{which}.txt").read_text()))


def test_every_locked_release_is_asked_for_and_none_has_a_hole() -> None:
    with service() as server:
        result = audit(server.server_port)

    assert result.returncode == 0, result.stderr
    assert server.asked >= locked("runtime") | locked("development")


def test_a_hole_in_what_the_agent_runs_with_fails_by_name() -> None:
    bad = min(locked("runtime"))
    with service(bad) as server:
        result = audit(server.server_port)

    assert result.returncode != 0
    assert re.search(rf"{re.escape(bad[0])} +{re.escape(bad[1])} +{HOLE}", result.stdout)


def test_an_audit_without_an_answer_fails() -> None:
    with service() as server:
        port = server.server_port

    assert audit(port).returncode != 0
