"""Faults of the API server, and of the way and the credentials to it: `problems` and `explain` name them with a cure, in time.

One agent follows one server over TLS. Its connections end when a fault is planted, because nobody sees before that what only a new one
meets. Services go on as they were programmed. Quiet between the scenes is the control of each.
"""

import json
import ssl
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from nodeagent.model.objects import LABEL_ZONE
from nodeagent.runtime.certificates import certificate, key, make_authority, make_certificate
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import document, make_node, make_service, make_slices, service_port
from tests.harness.plain_api_server import PlainServer, plain_api_server
from tests.harness.warm_start import AGENT, WarmLauncher
from tests.harness.worlds.process import AgentProcess
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.looks import LATEST_SECONDS, appears, first_line, is_healthy, problems, works
from tests.netns.faults.scenes import POD_TO_WEB

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

BRIDGE = NO_BRIDGE
HERE = "subjectAltName=IP:127.0.0.1"
NOT_FOLLOWED = "NodeagentNotFollowed"


@dataclass(frozen=True)
class Followed:
    """An agent that follows a server. directory: of the certificates and the token."""

    watched: WatchedNode
    agent: AgentProcess
    server: PlainServer
    context: ssl.SSLContext
    directory: Path

    def serve_with(self, name: str) -> None:
        """The server shows this certificate from now on."""
        self.context.load_cert_chain(certificate(self.directory, name), key(self.directory, name))

    def show(self, name: str) -> None:
        show(self.directory, name)

    def be(self, token: str) -> None:
        (self.directory / "token").write_text(token)

    def refuse(self, resource: str, *refusal: Any) -> None:
        self.server.refusals[resource] = refusal

    def nft(self, rule: str) -> None:
        self.watched.world.nft(NODE, rule)


def show(directory: Path, name: str) -> None:
    """The agent shows this certificate from now on."""
    for made, shown in ((certificate, "client.crt"), (key, "client.key")):
        (directory / shown).write_bytes(made(directory, name).read_bytes())


def make_expired(directory: Path, name: str) -> None:
    """A certificate of the authority whose time is over: openssl-req makes none."""
    request = directory / f"{name}.csr"
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}")
    names = ("-addext", HERE, "-keyout", str(key(directory, name)), "-out", str(request))
    signer = ("-CA", str(certificate(directory, "ca")), "-CAkey", str(key(directory, "ca")), "-copy_extensions", "copy")
    signed = ("x509", "-req", "-in", str(request), *signer, "-days", "-1", "-out", str(certificate(directory, name)))
    for arguments in ((*new, *names), signed):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def old_token() -> str:
    parts = ({"alg": "none"}, {"exp": int(time.time()) - 3600})
    return ".".join(urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts) + ".signature"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, other = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    for place in (directory, other):
        make_authority(place)
    make_certificate(directory, "good", "/CN=good", HERE)
    make_certificate(directory, "elsewhere", "/CN=elsewhere", "subjectAltName=DNS:api.example.org")
    make_certificate(other, "foreign", "/CN=foreign", HERE)
    for made in (certificate, key):
        made(other, "foreign").rename(made(directory, "foreign"))
    make_expired(directory, "old")
    return directory


@pytest.fixture(scope="module")
def followed(
    cluster: Cluster, warm_launcher: WarmLauncher, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Followed]:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("s"))
    watched.world["web-0"].serve(TARGET_PORT)
    service = make_service("web", *cluster_ips(1), ports=(service_port(80, name="http"),))
    slices = make_slices(service, [(watched.world["web-0"].addresses, NODE)], target_port=TARGET_PORT)
    node = make_node(NODE, watched.world[NODE].addresses)
    documents: list[dict[str, Any]] = [*map(document, slices), document(service), document(node)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(certificate(directory, "ca"))
    context.verify_mode = ssl.CERT_OPTIONAL
    kubeconfig, state = directory / "kubeconfig", directory / "state"
    state.mkdir()
    user = {
        "tokenFile": str(directory / "token"),
        "client-certificate": str(directory / "client.crt"),
        "client-key": str(directory / "client.key"),
    }
    authority = {"certificate-authority": str(certificate(directory, "ca"))}
    namespace = watched.world.namespace(NODE)
    with plain_api_server(namespace, documents, kubeconfig, context=context, cluster=authority, user=user) as server:
        source = (f"--kubeconfig={kubeconfig}", f"--node-name={NODE}", f"--snapshot={state}/state")
        places = ("--table-ownership=plain", f"--socket={watched.socket}", "--events=false", *WITH_POD_CIDRS)
        context.load_cert_chain(certificate(directory, "good"), key(directory, "good"))
        show(directory, "good")
        (directory / "token").write_text("token")
        agent = watched.world.start(NODE, [*AGENT, "run", *source, *places])
        agent.wait_for_line(" ready: ")
        yield Followed(watched, agent, server, context, directory)
        agent.stop()


@dataclass(frozen=True)
class Fault:
    """reason: of the problem. says: what its line has, and the last of it that of `explain`. alert: fires."""

    plant: Callable[[Followed], None]
    cure: Callable[[Followed], None]
    reason: str
    says: tuple[str, ...]
    alert: str = NOT_FOLLOWED
    explained: bool = True


def trusted(followed: Followed) -> None:
    followed.serve_with("good")


def accepted(followed: Followed) -> None:
    followed.server.refusals.clear()
    followed.be("token")
    followed.show("good")


def open_again(followed: Followed) -> None:
    followed.nft("delete table inet gone")


def on_time(followed: Followed) -> None:
    followed.server.ahead_seconds = 0.0


def close(verdict: str) -> Callable[[Followed], None]:
    def plant(followed: Followed) -> None:
        port = followed.server.server_address[1]
        chain = (
            f"chain i {{ type filter hook input priority 0; tcp dport {port} tcp flags & (syn|ack) == syn {verdict}; }}"
        )
        followed.nft(f"table inet gone {{ {chain}; }}")

    return plant


def both(*steps: Callable[[Followed], None]) -> Callable[[Followed], None]:
    def plant(followed: Followed) -> None:
        for step in steps:
            step(followed)

    return plant


UNAUTHORIZED = (401, "Unauthorized", "Unauthorized")
CREDENTIAL = "give the agent a credential that the server takes"
FAULTS = {
    "nobody listens": Fault(
        close("reject with tcp reset"), open_again, "ServerUnreachable",
        ("Connection refused; see that the API server can be reached from this node",),
    ),
    "401, a token that has expired": Fault(
        both(lambda f: f.be(old_token()), lambda f: f.refuse("", *UNAUTHORIZED)), accepted, "Unauthorized",
        ("401 Unauthorized: Unauthorized; its token expired at 20", CREDENTIAL),
    ),
    "403 for EndpointSlices": Fault(
        lambda f: f.refuse("endpointslices", 403, "Forbidden", 'endpointslices is forbidden: User "agent" cannot list'), accepted,
        "Forbidden", ("API resource endpointslices", 'User "agent" cannot list; allow its account to list and watch that',),
    ),
    "403 for Services": Fault(
        lambda f: f.refuse("services", 403, "Forbidden", 'services is forbidden: User "agent" cannot list'), accepted,
        "Forbidden", ("API resource services", "kubectl auth can-i list services",),
    ),
    "a certificate that has expired": Fault(
        lambda f: f.serve_with("old"), trusted, "UntrustedServer",
        ("its certificate is not accepted: certificate has expired; renew it at the server",),
    ),
    "a certificate of another authority": Fault(
        lambda f: f.serve_with("foreign"), trusted, "UntrustedServer",
        ("its certificate is not accepted: ", "; give the agent the authority that signed it: certificate-authority",),
    ),
    "a certificate of another host": Fault(
        lambda f: f.serve_with("elsewhere"), trusted, "UntrustedServer",
        ("its certificate is not accepted: IP address mismatch", "; use a name of the server that is in its certificate",),
    ),
    "a client certificate that has expired": Fault(
        lambda f: f.show("old"), accepted, "ServerUnreachable", ("; its client certificate expired at 20",),
    ),
    "a clock that is ten minutes late": Fault(
        lambda f: setattr(f.server, "ahead_seconds", 600.0), on_time, "ClockSkew",
        ("clock of this node", "behind the API server's", "set the one that is wrong"), "NodeagentClockSkew", explained=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in FAULTS.items()])
def test_a_fault_is_named_with_its_cure(followed: Followed, fault: Fault) -> None:
    watched = followed.watched
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    assert works(watched, POD_TO_WEB, 20.0)
    fault.plant(followed)
    try:
        followed.server.interrupt()
        line = appears(watched, fault.reason, fault.alert)
        for text in fault.says:
            assert text in line, line
        code, explained = first_line(watched, "explain", "web")
        if fault.explained:
            assert explained.startswith("impaired: what this node knows of it may be outdated, because API resource ")
            assert (code, fault.says[-1] in explained) == (1, True), explained
        assert works(watched, POD_TO_WEB)
    finally:
        fault.cure(followed)
        followed.server.interrupt()
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    assert first_line(watched, "explain", "web") == (0, "healthy: 2 of 2 endpoints used")


def test_a_server_that_is_behind_a_hole(followed: Followed) -> None:
    """Connections to it are tried for less than ten seconds. Open ones: tests/e2e/test_silent_server.py."""
    watched = followed.watched
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    close("drop")(followed)
    followed.server.interrupt()
    try:
        line = appears(watched, "ServerUnreachable", NOT_FOLLOWED)
        assert "see that the API server can be reached from this node" in line
        wait_for(lambda: "no answer in time; see that" in problems(watched), lambda: problems(watched))
        assert works(watched, POD_TO_WEB)
    finally:
        open_again(followed)
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))


def test_a_disk_without_room_for_the_state(followed: Followed) -> None:
    """After ten seconds: so often is a state saved that has changed."""
    watched, place = followed.watched, followed.directory / "state"
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    inside = ["nsenter", f"--target={followed.agent.pid}", "--mount"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=16k", "none", str(place)], check=True)
    subprocess.run([*inside, "sh", "-c", f"cat /dev/zero > {place}/filler"], check=False, capture_output=True)
    followed.server.objects[-1]["metadata"] |= {"resourceVersion": "2", "labels": {LABEL_ZONE: "another"}}
    followed.server.refused.clear()
    followed.refuse("nodes", 410, "Expired", "list again")
    followed.server.interrupt()
    try:
        wait_for(lambda: followed.server.refused["nodes"] > 0, lambda: "the watch is refused")
        followed.server.refusals.clear()
        line = appears(watched, "NotSaved", "NodeagentNotSaved", LATEST_SECONDS + 5.0)
        assert "cannot be written: No space left on device" in line
        assert "see the disk and the directory's owner" in line
        assert works(watched, POD_TO_WEB)
    finally:
        subprocess.run([*inside, "umount", "--lazy", str(place)], check=True)
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
