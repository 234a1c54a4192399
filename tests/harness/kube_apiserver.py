"""A real kube-apiserver on an etcd of a test. KUBERNETES=DIR says where a release's binaries are (DIR or DIR/bin)."""

import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.etcd_hosts import Host

_PLACE: Final = Path(os.environ.get("KUBERNETES") or "/nowhere")
PROGRAM: Final = next(
    (found for found in (_PLACE / "kube-apiserver", _PLACE / "bin" / "kube-apiserver") if found.exists()), None
)
needs_kube_apiserver = pytest.mark.skipif(
    PROGRAM is None, reason="no kube-apiserver: KUBERNETES=DIR names the binaries of a release"
)
TOKEN: Final = "secret-admin"
_DEADLINE_SECONDS: Final = 60.0


class Api:
    """An API server as one client sees it, whose certificate is not looked at."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Status and document; status 0 where nobody answers."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
                return answer.status, _document(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _document(error.read())
        except OSError:
            return 0, {}

    def get(self, path: str) -> dict[str, Any]:
        status, document = self.call("GET", path)
        assert status == 200, document
        return document

    def is_ready(self) -> bool:
        return self.call("GET", "/readyz")[0] == 200


class KubeApiserver:
    """On a host, at the usual port; ready when this returns."""

    def __init__(self, place: Path, host: Host, etcd: str, service_ranges: str, *flags: str) -> None:
        place.mkdir()
        self._log = place / "log"
        key = place / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (place / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n")
        self.api = Api(f"https://{host.address}:6443", TOKEN)
        self._command = [
            *(*host.prefix, str(PROGRAM), "--etcd-servers", etcd, "--storage-media-type=application/json"),
            *("--service-cluster-ip-range", service_ranges, "--bind-address", host.address),
            *("--advertise-address", host.address, "--cert-dir", str(place / "certificates")),
            *("--token-auth-file", str(place / "tokens.csv"), "--authorization-mode", "RBAC"),
            *("--service-account-key-file", str(key), "--service-account-signing-key-file", str(key)),
            *("--service-account-issuer", "https://kubernetes.default.svc", *flags),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self.api.is_ready, "kube-apiserver is not ready")

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()

    def said(self, *words: str) -> list[str]:
        """Lines of its log with one of these words."""
        return [line for line in self._log.read_text().splitlines() if any(word in line for word in words)]


def until(condition: Callable[[], object], what: str, seconds: float = _DEADLINE_SECONDS) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.1)


def _document(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
