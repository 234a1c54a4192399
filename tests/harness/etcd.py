"""Members of etcd on loopback or hosts, that can be killed, frozen and started again. Debian 12's etcd, which `make test` unpacks."""

import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from nodeagent.runtime.certificates import AUTHORITY, certificate, key, make_authority, make_certificate
from tests.harness.etcd_hosts import CLIENT_PORT, PEER_PORT, Host
from tests.harness.free_ports import free_ports

PROGRAM: Final = Path(os.environ.get("ETCD") or Path(__file__).parents[2] / ".tools" / "etcd-3.4" / "etcd")
"""ETCD=/path/to/etcd takes another one."""
_DEADLINE_SECONDS: Final = 60.0
_ROOM_BYTES: Final = 2 << 30
"""A member takes 64 MB for its log as soon as it starts."""
missing: Final = not PROGRAM.exists() and os.environ.get("CI") != "true"
needs_etcd = pytest.mark.skipif(missing, reason=f"no {PROGRAM}: make .tools/etcd-3.4/etcd")


def can_bump_revisions() -> bool:
    """Returns whether the etcdctl beside etcd can raise revisions when it restores a snapshot: 3.5.10 and later."""
    try:
        shown = subprocess.run(
            [PROGRAM.with_name("etcdctl"), "snapshot", "restore", "--help"],
            capture_output=True,
            text=True,
            env={**os.environ, "ETCDCTL_API": "3"},
            check=False,
        )
    except OSError:
        return False
    return "--bump-revision" in shown.stdout


@dataclass(frozen=True)
class Files:
    """Keys and certificates of one authority: what members show, and what clients do."""

    authority: Path
    member: tuple[Path, Path]
    client: tuple[Path, Path]

    @classmethod
    def make(cls, directory: Path) -> "Files":
        """New ones, for members on 127.0.0.1."""
        make_authority(directory, "/CN=etcd")
        for name in ("member", "client"):
            make_certificate(directory, name, f"/CN={name}", "subjectAltName=IP:127.0.0.1")
        pairs = ((certificate(directory, name), key(directory, name)) for name in ("member", "client"))
        return cls(certificate(directory, AUTHORITY), *pairs)

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
        """An answer of its JSON gateway; empty when it does not answer."""
        request = urllib.request.Request(f"{self.client_url}{path}", json.dumps(body or {}).encode())
        try:
            with urllib.request.urlopen(request, timeout=2, context=self._context) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, urllib.error.URLError, ValueError):
            return {}


class EtcdCluster:
    """Members that know each other; ready when this returns. `close` ends them."""

    def __init__(
        self,
        directory: Path,
        count: int = 1,
        *flags: str,
        files: Files | None = None,
        hosts: Sequence[Host] = (),
        on_disk: bool = False,
    ) -> None:
        self._files = files
        self._in_memory = None if on_disk else _room_in_memory()
        self._hosts = hosts
        self.members: list[Member] = []
        self._founding: list[tuple[str, Path, str]] = []
        self._names = itertools.count()
        self._flags: Sequence[str] = ()
        # Somebody else may take a port between its choice and its use.
        for attempt in range(5):
            self._begin(directory / str(attempt), count, flags)
            if self._becomes_ready():
                return
            self._end()
        self.close()
        raise AssertionError(f"etcd does not start, see {directory}")

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Host and port of each member, for clients."""
        found = [urlsplit(member.client_url) for member in self.members]
        return [(url.hostname or "", url.port or 0) for url in found]

    @property
    def urls(self) -> str:
        """As --etcd-servers has them."""
        return ",".join(member.client_url for member in self.members)

    def host_of(self, member: Member) -> Host:
        """Where it runs, if the members were given hosts."""
        return self._hosts[self.members.index(member)]

    def states(self) -> set[tuple[int, int, int]]:
        """Hash of all keys, revision, and where history begins: one where all members, which have to run, agree."""
        shown = self._etcdctl("--endpoints", self.urls, "endpoint", "hashkv", "-w", "json")
        return {
            (one["HashKV"]["hash"], one["HashKV"]["header"]["revision"], one["HashKV"].get("compact_revision", 0))
            for one in json.loads(shown)
        }

    def document(self, key: str) -> Any:
        """What a key holds, as JSON."""
        shown = json.loads(self._etcdctl("--endpoints", self.urls, "get", key, "-w", "json"))
        return json.loads(base64.b64decode(shown["kvs"][0]["value"]))

    def save(self, snapshot: Path) -> None:
        """A snapshot of the first member."""
        self._etcdctl("--endpoints", self.members[0].client_url, "snapshot", "save", str(snapshot))

    def restore(self, snapshot: Path, *flags: str) -> None:
        """All members start again from a snapshot, as etcd's guide has it: ended, restored each, and started."""
        self._end()
        cluster = ",".join(f"{name}={peer}" for name, _, peer in self._founding)
        for (name, directory, peer), member in zip(self._founding, self.members, strict=True):
            shutil.rmtree(directory)
            place = ["--name", name, "--data-dir", str(directory), "--initial-advertise-peer-urls", peer]
            self._etcdctl("snapshot", "restore", str(snapshot), *place, "--initial-cluster", cluster, *flags)
            member.start()
        assert self._becomes_ready()

    def spare(self) -> tuple[str, str]:
        """For a member that is to join: where its peers and its clients will find it."""
        peer, client = free_ports(2)
        return f"http://127.0.0.1:{peer}", f"{'https' if self._files else 'http'}://127.0.0.1:{client}"

    def join(self, place: tuple[str, str]) -> Member:
        """One more member, as etcd's guide has it: it is added to the others, then it is started, with nothing."""
        name = f"n{next(self._names)}"
        data = self._founding[0][1].parent / name

        def added() -> str | None:
            found = re.search(r'ETCD_INITIAL_CLUSTER="(.*)"', self._change("add", name, f"--peer-urls={place[0]}"))
            return found and found[1]

        # As long as one has just joined or left, the others take no further change.
        cluster = self._wait(added, "the others do not take it")
        member = self._member(
            name, data, place, cluster, self._founding[0][1].parent.parent / f"{data.parent.name}.log"
        )
        member.start("--initial-cluster-state", "existing")
        self.members.append(member)
        self._founding.append((name, data, place[0]))
        return member

    def leave(self, member: Member) -> tuple[str, str]:
        """A member is taken out for good, whatever state it is in, and its data removed; where it was."""
        index = self.members.index(member)
        _, data, peer = self._founding[index]
        del self.members[index], self._founding[index]

        def removed() -> bool | None:
            listed = json.loads(self._etcdctl("--endpoints", self.urls, "member", "list", "-w", "json"))["members"]
            number = next((one["ID"] for one in listed if one["peerURLs"] == [peer]), None)
            return True if number is None or self._change("remove", f"{number:x}") else None

        self._wait(removed, "the others do not let it go")
        member.kill()
        shutil.rmtree(data, ignore_errors=True)
        return peer, member.client_url

    def _change(self, *arguments: str) -> str:
        """What is said of a change of members; empty where it is refused."""
        try:
            return self._etcdctl("--endpoints", self.urls, "member", *arguments)
        except AssertionError:
            return ""

    def _etcdctl(self, *arguments: str) -> str:
        command = [str(PROGRAM.with_name("etcdctl")), *arguments]
        shown = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"}, check=False
        )
        assert shown.returncode == 0, shown.stderr
        return shown.stdout

    def is_well(self) -> None:
        """Wait until all members answer."""
        assert self._becomes_ready()

    def leader(self) -> Member:
        """The member that leads, once there is one."""
        found: Member = self._wait(self._leader, "there is no leader")
        return found

    def close(self) -> None:
        """Ends all members, for good."""
        self._end()
        if self._in_memory is not None:
            shutil.rmtree(self._in_memory, ignore_errors=True)

    def _end(self) -> None:
        for member in self.members:
            member.kill()

    def _begin(self, directory: Path, count: int, flags: Sequence[str]) -> None:
        directory.mkdir(parents=True)
        places = self._places(count)
        cluster = ",".join(f"m{number}={peer}" for number, (peer, _) in enumerate(places))
        self.members = []
        data = self._in_memory / directory.name if self._in_memory is not None else directory
        self._founding = [(f"m{number}", data / f"m{number}", peer) for number, (peer, _) in enumerate(places)]
        self._flags = flags
        for number, place in enumerate(places):
            name = f"m{number}"
            prefix = self._hosts[number].prefix if self._hosts else []
            member = self._member(name, data / name, place, cluster, directory / f"{name}.log", prefix)
            member.start()
            self.members.append(member)

    def _member(
        self, name: str, data: Path, place: tuple[str, str], cluster: str, log: Path, prefix: Sequence[str] = ()
    ) -> Member:
        peer, client = place
        arguments = [*prefix, str(PROGRAM), "--name", name, "--data-dir", str(data)]
        arguments += ["--listen-client-urls", client, "--advertise-client-urls", client]
        arguments += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        arguments += ["--initial-cluster", cluster, "--log-level", "warn", "--pre-vote=true", *self._flags]
        arguments += self._files.flags if self._files else []
        return Member(arguments, client, log, self._files.context() if self._files else None)

    def _places(self, count: int) -> list[tuple[str, str]]:
        """For peers and for clients: on hosts of their own, or on ports of this one."""
        scheme = "https" if self._files else "http"
        if self._hosts:
            return [
                (f"http://{host.address}:{PEER_PORT}", f"{scheme}://{host.address}:{CLIENT_PORT}")
                for host in self._hosts
            ]
        ports = free_ports(2 * count)
        return [
            (f"http://127.0.0.1:{peer}", f"{scheme}://127.0.0.1:{client}")
            for peer, client in zip(ports[:count], ports[count:], strict=True)
        ]

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


def _room_in_memory() -> Path | None:
    """A directory that no disk keeps waiting, where there is room: what a busy machine's disk takes is not what is tested."""
    place = Path("/dev/shm")
    if not place.is_dir() or shutil.disk_usage(place).free < _ROOM_BYTES:
        return None
    return Path(tempfile.mkdtemp(prefix="nodeagent-etcd-", dir=place))


@contextlib.contextmanager
def running(
    directory: Path,
    count: int = 1,
    *flags: str,
    files: Files | None = None,
    hosts: Sequence[Host] = (),
    on_disk: bool = False,
) -> Iterator[EtcdCluster]:
    """A cluster for as long as the block lasts; on `hosts` if given, one each, and then called from their clients' namespace."""
    cluster = EtcdCluster(directory, count, *flags, files=files, hosts=hosts, on_disk=on_disk)
    try:
        yield cluster
    finally:
        cluster.close()
