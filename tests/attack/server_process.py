"""An API server as a process of its own, and what it takes of the machine."""

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import yaml

COMMAND = [sys.executable, "-m", "tests.attack.telling_server"]
ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60.0


class Victim:
    """A server: where it listens, its administrator's token, its size and its log."""

    def __init__(self, process: "subprocess.Popen[bytes]", config: Path, figures: Path) -> None:
        document = yaml.safe_load(config.read_text())
        cluster = document["clusters"][0]["cluster"]
        self.process = process
        self._figures = figures
        self.token = document["users"][0]["user"]["token"]
        url = urlsplit(cluster["server"])
        self.address = (url.hostname or "", url.port or 0)
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=authority)
        self.log: list[bytes] = []

    def connect(self) -> ssl.SSLSocket:
        """A connection over TLS on which nothing has been said yet."""
        plain = socket.create_connection(self.address, DEADLINE_SECONDS)
        return self.context.wrap_socket(plain, server_hostname=self.address[0])

    def ask(self, method: str, path: str, body: bytes = b"", media_type: str = "application/json") -> tuple[int, Any]:
        """(status, JSON) of a request on a connection of its own; how long it took is for the caller to measure."""
        with self.connect() as connection:
            head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {self.token}\r\nConnection: close\r\n"
            head += f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
        head_text, _, answer = b"".join(parts).partition(b"\r\n\r\n")
        return int(head_text.split()[1]), json.loads(answer) if answer[:1] in b"{[" else answer

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20

    @property
    def bytes_in_use(self) -> int:
        """What is allocated and not yet free again, once unreachable cycles have been collected."""
        self._figures.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        self.until(self._figures.exists)
        return int(self._figures.read_text())

    @property
    def files(self) -> int:
        """Open files."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def until(self, true: Any) -> None:
        """Waits for a condition."""
        ends = time.monotonic() + DEADLINE_SECONDS
        while not true():
            assert time.monotonic() < ends
            time.sleep(0.1)


@contextmanager
def victim(directory: Path, *arguments: str, to_the_byte: bool = False) -> Iterator[Victim]:
    """A server on a free port, ready; killed in the end. to_the_byte: it can tell `bytes_in_use`, and is slower."""
    config = directory / "kubeconfig"
    options = ["--listen", "127.0.0.1:0", "--kubeconfig-out", str(config), *arguments]
    figures = directory / "figures"
    # Python's own allocator keeps pools to itself; the C library's says to the byte what is in use.
    environment = {**os.environ, "TMPDIR": str(directory), **({"PYTHONMALLOC": "malloc"} if to_the_byte else {})}
    command = [*COMMAND, str(figures), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT, env=environment)
    assert process.stderr is not None
    try:
        ends = time.monotonic() + DEADLINE_SECONDS
        while not config.exists():
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.01)
        found = Victim(process, config, figures)
        reader = threading.Thread(target=_read, args=(process.stderr, found.log), daemon=True)
        reader.start()
        yield found
        assert process.poll() is None, b"".join(found.log)[-2000:]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _read(stream: IO[bytes], lines: list[bytes]) -> None:
    try:
        lines.extend(iter(stream.readline, b""))
    except ValueError:
        return
