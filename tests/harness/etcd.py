"""Members of etcd on loopback, that can be killed, frozen and started again. Debian 12's etcd, which `make test` unpacks."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAM: Final = Path(os.environ.get("ETCD") or Path(__file__).parents[2] / ".tools" / "etcd-3.4" / "etcd")
"""ETCD=/path/to/etcd takes another one."""
_DEADLINE_SECONDS: Final = 60.0
missing: Final = not PROGRAM.exists() and os.environ.get("CI") != "true"
needs_etcd = pytest.mark.skipif(missing, reason=f"no {PROGRAM}: make .tools/etcd-3.4/etcd")


@dataclass(frozen=True)
class Files:
    """Keys and certificates of one authority: what members show, and what clients do."""

    authority: Path
    member: tuple[Path, Path]
    client: tuple[Path, Path]

    @classmethod
    def make(cls, directory: Path) -> "Files":
        """New ones, for members on 127.0.0.1."""
        authority, key = directory / "ca.crt", directory / "ca.key"
        begin = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]

        def run(*arguments: str | Path) -> None:
            subprocess.run([*begin, *arguments], check=True, capture_output=True, cwd=directory)

        run("-subj", "/CN=etcd", "-keyout", key, "-out", authority)
        pairs = []
        for name in ("member", "client"):
            pair = (directory / f"{name}.crt", directory / f"{name}.key")
            names = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")
            run("-subj", f"/CN={name}", "-CA", authority, "-CAkey", key, "-keyout", pair[1], "-out", pair[0], *names)
            pairs.append(pair)
        return cls(authority, *pairs)

    @property
    def flags(self) -> list[str]:
        """For a member that wants clients' certificates."""
        found = ["--cert-file", str(self.member[0]), "--key-file", str(self.member[1])]
        return [*found, "--client-cert-auth", "--trusted-ca-file", str(self.authority)]

    def context(self) -> ssl.SSLContext:
        """For a client."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(*self.client)
        return context


class Member:
    """One member: its arguments, and its process while it has one."""

    def __init__(
        self, arguments: Sequence[str], client_url: str, log: Path, context: ssl.SSLContext | None = None
    ) -> None:
        self._arguments = list(arguments)
        self._context = context
        self._log = log
        self.client_url = client_url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        """Begins its process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._arguments, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._log.parent
            )

    def send(self, number: signal.Signals) -> None:
        """A signal, where it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """It neither runs nor ends."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was frozen."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, and waits for that."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    @property
    def ended(self) -> bool:
        """It was started, and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def call(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """An answer of its JSON gateway; empty when there is none."""
        request = urllib.request.Request(f"{self.client_url}{path}", json.dumps(body or {}).encode())
        try:
            with urllib.request.urlopen(request, timeout=2, context=self._context) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, urllib.error.URLError, ValueError):
            return {}


class EtcdCluster:
    """Members that know each other; ready when this returns. `close` ends them."""

    def __init__(self, directory: Path, count: int = 1, *flags: str, files: Files | None = None) -> None:
        self._files = files
        self.members: list[Member] = []
        # Somebody else may take a port between its choice and its use.
        for attempt in range(5):
            self._begin(directory / str(attempt), count, flags)
            if self._becomes_ready():
                return
            self.close()
        raise AssertionError(f"etcd does not start, see {directory}")

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Host and port of each member, for clients."""
        return [("127.0.0.1", int(member.client_url.rpartition(":")[2])) for member in self.members]

    @property
    def urls(self) -> str:
        """As --etcd-servers has them."""
        return ",".join(member.client_url for member in self.members)

    def leader(self) -> Member:
        """The member that leads, once there is one."""
        found: Member = self._wait(self._leader, "there is no leader")
        return found

    def close(self) -> None:
        """Ends all members."""
        for member in self.members:
            member.kill()

    def _begin(self, directory: Path, count: int, flags: Sequence[str]) -> None:
        directory.mkdir(parents=True)
        ports = free_ports(2 * count)
        peers = [f"http://127.0.0.1:{port}" for port in ports[:count]]
        cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        self.members = []
        for number, peer in enumerate(peers):
            client = f"{'https' if self._files else 'http'}://127.0.0.1:{ports[count + number]}"
            arguments = [str(PROGRAM), "--name", f"m{number}", "--data-dir", str(directory / f"m{number}")]
            arguments += ["--listen-client-urls", client, "--advertise-client-urls", client]
            arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            arguments += ["--initial-cluster", cluster, "--log-level", "warn", "--pre-vote=true", *flags]
            arguments += self._files.flags if self._files else []
            context = self._files.context() if self._files else None
            member = Member(arguments, client, directory / f"m{number}.log", context)
            member.start()
            self.members.append(member)

    def _leader(self) -> Member | None:
        for member in self.members:
            found = member.call("/v3/maintenance/status")
            if found and found.get("leader", "0") == found["header"]["member_id"]:
                return member
        return None

    def _becomes_ready(self) -> bool:
        ends = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < ends and not any(member.ended for member in self.members):
            if all(member.call("/v3/kv/range", {"key": "AA=="}) for member in self.members):
                return True
            time.sleep(0.05)
        return False

    def _wait(self, condition: Any, what: str) -> Any:
        ends = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < ends:
            found = condition()
            if found is not None:
                return found
            time.sleep(0.05)
        raise AssertionError(what)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody has at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def running(directory: Path, count: int = 1, *flags: str, files: Files | None = None) -> Iterator[EtcdCluster]:
    """A cluster for as long as the block lasts."""
    cluster = EtcdCluster(directory, count, *flags, files=files)
    try:
        yield cluster
    finally:
        cluster.close()
