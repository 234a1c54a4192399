"""The etcd members of a lab, one beside each API server. Used by one thread."""

import base64
import shutil
from pathlib import Path

from nodeagent.lab.api import Access, Api, Document
from nodeagent.lab.lab_plan import ETCD_PEER_PORT, ETCD_PORT, member_name
from nodeagent.lab.net.namespace_process import AgentProcess
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.topology import UNDERLAY, OutsideHost
from nodeagent.lab.net.world import World
from nodeagent.lab.patience import Patience
from nodeagent.proxy.source.client.api_client import Timeouts
from nodeagent.proxy.source.client.credentials import ClientCertificate, FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.runtime.certificates import (
    AUTHORITY,
    CertificateFailed,
    certificate,
    key,
    make_authority,
    make_certificate,
)

CALL_SECONDS = 2.0
UPKEEP_SECONDS = 30.0
"""Timeout of requests that block a member, such as defragmentation."""
DISK_BYTES_EACH = 200 << 20
"""Two log files of 64 MB, which etcd allocates in advance, and twice the quota, because defragmenting copies."""
QUOTA_BYTES = 32 << 20
FILLER_BYTES = 700 << 10
"""In base64 less than 1 MiB, the largest body that is sent without a warning."""
FILLER = "/lab/filler/"
"""Prefix of the many keys that use up the quota; nothing else reads them."""
NO_SPACE = "NOSPACE"
CLIENT = "client"


class EtcdCluster:
    """Members by host name. Methods raise LabError if etcd does not do what it should."""

    def __init__(
        self,
        program: str,
        hosts: tuple[OutsideHost, ...],
        directory: Path,
        world: World,
        patience: Patience,
    ) -> None:
        self.members: dict[str, AgentProcess] = {}
        self._program = program
        self._addresses = {host.name: host.addresses[0] for host in hosts}
        self._directory = directory
        self._world = world
        self._patience = patience

    @property
    def client_options(self) -> list[str]:
        """The options with which an API server connects to etcd."""
        urls = [f"https://{address}:{ETCD_PORT}" for address in self._addresses.values()]
        return [
            f"--etcd-servers={','.join(urls)}",
            f"--etcd-cafile={certificate(self._directory, AUTHORITY)}",
            f"--etcd-certfile={certificate(self._directory, CLIENT)}",
            f"--etcd-keyfile={key(self._directory, CLIENT)}",
        ]

    def start(self) -> None:
        """Starts all members, and waits until each answers."""
        self._directory.mkdir(mode=0o700)
        check_room(self._directory, len(self._addresses))
        self._make_certificates()
        for host in self._addresses:
            self.members[host] = self._world.start(host, self._command(host))
        for host in self._addresses:
            self.await_answer(host)

    def _make_certificates(self) -> None:
        """Makes the members' certificates, used for clients and for other members, and one for clients."""
        try:
            make_authority(self._directory)
            for host, address in self._addresses.items():
                name = member_name(host)
                make_certificate(self._directory, name, f"/CN={name}", f"subjectAltName=IP:{address}")
            make_certificate(self._directory, CLIENT, f"/CN={CLIENT}")
        except CertificateFailed as failed:
            raise LabError(str(failed)) from failed

    def _command(self, host: str) -> list[str]:
        name, address = member_name(host), self._addresses[host]
        client, peer = f"https://{address}:{ETCD_PORT}", f"https://{address}:{ETCD_PEER_PORT}"
        peers = ",".join(f"{member_name(one)}=https://{at}:{ETCD_PEER_PORT}" for one, at in self._addresses.items())
        files = {
            "cert-file": certificate(self._directory, name),
            "key-file": key(self._directory, name),
            "trusted-ca-file": certificate(self._directory, AUTHORITY),
        }
        tls = [f"--{kind}{option}={path}" for kind in ("", "peer-") for option, path in files.items()]
        return [
            self._program,
            *("--name", name, "--data-dir", str(self._directory / name)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", peers, "--initial-cluster-token", "nodeagent-lab"),
            *("--client-cert-auth", "--peer-client-cert-auth", *tls),
            *("--quota-backend-bytes", str(QUOTA_BYTES), "--pre-vote=true", "--log-level", "warn"),
        ]

    def await_answer(self, host: str) -> None:
        """Waits until a member answers, which it does when it follows a leader."""
        self._patience.until(lambda: self.answers(host), f"an answer of {member_name(host)}", of=self.members[host])

    def answers(self, host: str) -> bool:
        """Returns whether a member answers a linearizable read."""
        try:
            self.call(host, "/v3/kv/range", {"key": encoded("\0")})
        except LabError:
            return False
        return True

    def status(self, host: str) -> Document:
        """Returns a member's own status: its leader, its size."""
        return self.call(host, "/v3/maintenance/status")

    def leads(self, host: str) -> bool:
        """Returns whether a member reports that it leads; False if it does not answer."""
        try:
            status = self.status(host)
        except LabError:
            return False
        return bool(status.get("leader", "0") == status["header"]["member_id"])

    def leader(self) -> str:
        """Returns the host of the leader, as soon as there is one. If several claim to lead, the latest term wins."""
        found: dict[int, str] = {}

        def look() -> bool:
            for host in self._addresses:
                if self.members[host].running and self.leads(host):
                    found[int(self.status(host).get("raftTerm", 0))] = host
            return bool(found)

        self._patience.until(look, "a leader of etcd")
        return found[max(found)]

    def restart(self, host: str) -> None:
        """Starts a member again, and waits until it answers."""
        self.members[host].restart()
        self.await_answer(host)

    # -- its space ----------------------------------------------------------------------------------------------

    def fill(self) -> int:
        """Writes until the quota is used up. Returns the bytes written."""
        value = base64.b64encode(bytes(FILLER_BYTES)).decode()
        host = self.leader()
        for number in range(2 * QUOTA_BYTES // FILLER_BYTES):
            try:
                self.call(host, "/v3/kv/put", {"key": encoded(f"{FILLER}{number}"), "value": value}, UPKEEP_SECONDS)
            except LabError:
                if self.is_full():
                    return number * FILLER_BYTES
                raise
        raise LabError(f"etcd accepted {2 * QUOTA_BYTES >> 20} MB, twice its quota")

    def is_full(self) -> bool:
        """Returns whether a member has raised the alarm; after that etcd writes nothing."""
        return bool(self._alarms())

    def _alarms(self) -> list[Document]:
        """Returns the NOSPACE alarms of all members."""
        alarms = self.call(next(iter(self._addresses)), "/v3/maintenance/alarm", {"action": "GET"}).get("alarms", [])
        return [one for one in alarms if one.get("alarm") == NO_SPACE]

    def make_room(self) -> None:
        """Deletes what `fill` wrote, compacts, defragments each member, ends the alarm."""
        host = self.leader()
        end = FILLER[:-1] + chr(ord(FILLER[-1]) + 1)
        deleted = self.call(
            host, "/v3/kv/deleterange", {"key": encoded(FILLER), "range_end": encoded(end)}, UPKEEP_SECONDS
        )
        self.call(
            host, "/v3/kv/compaction", {"revision": deleted["header"]["revision"], "physical": True}, UPKEEP_SECONDS
        )
        for each in self._addresses:
            self.call(each, "/v3/maintenance/defragment", {}, UPKEEP_SECONDS)
        for alarm in self._alarms():
            self.call(host, "/v3/maintenance/alarm", {**alarm, "action": "DEACTIVATE"})

    def call(self, host: str, path: str, body: Document | None = None, seconds: float = CALL_SECONDS) -> Document:
        """Returns a member's answer from its JSON gateway. Raises LabError."""
        trust = TlsTrust(certificate(self._directory, AUTHORITY))
        identity = ClientCertificate(
            FixedCredential(), certificate(self._directory, CLIENT), key(self._directory, CLIENT)
        )
        access = Access(ClusterAccess(f"https://{self._addresses[host]}:{ETCD_PORT}", trust, identity))
        try:
            with Api(access, self._world.namespace(UNDERLAY), Timeouts(seconds, seconds, seconds)) as api:
                return api.call("POST", path, body or {})
        except LabError as error:
            raise LabError(f"{member_name(host)}: {error}") from error


def check_room(directory: Path, members: int) -> None:
    """Raises LabError if the data of this many members does not fit on the disk; etcd would fail later."""
    needed, free = members * DISK_BYTES_EACH, shutil.disk_usage(directory).free
    if free < needed:
        raise LabError(
            f"{directory}: {free >> 20} MB are free, but {members} members of etcd need {needed >> 20}: "
            "set NODEAGENT_LAB_DIR to a directory with more room"
        )


def encoded(text: str) -> str:
    """Returns a key as the JSON gateway expects it."""
    return base64.b64encode(text.encode()).decode()
