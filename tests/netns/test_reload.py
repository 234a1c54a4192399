"""SIGHUP: a new configuration takes effect under load, one that cannot be used changes nothing."""

import json
import re
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.uninterrupted import PODS, SHOP, uninterrupted
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

IMPATIENT = Path(__file__).with_name("impatient_daemon.py")
NEW = cluster_ips(3)
IN_FORCE = "reload: the new configuration takes effect"
REFUSED = "reload failed, the configuration stays as it was: "
SERVED = "1 service, 6 endpoints on node-a (IPv4, IPv6)"


@dataclass
class Reloadable:
    """An agent with a configuration file, started as systemd would, and what it tells systemd."""

    cluster: Cluster
    path: Path
    listener: socket.socket
    agent: AgentProcess
    shown: list[str] = field(default_factory=list)

    def reload(self, line: str) -> str:
        """Read the configuration again; the line that says what became of it. READY ends it in any case."""
        printed, heard = len(self.agent.lines), len(self.hear())
        self.agent.signal(signal.SIGHUP)
        found = self.agent.wait_for_line(line, after=printed)
        self.agent.wait_until(lambda: any("READY=1" in text for text in self.hear()[heard:]), "READY")
        # A pass that was under way may tell its status first.
        shown = [text for text in self.shown[heard:] if not text.startswith("STATUS=")]
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", shown[0])
        assert "READY=1" in shown[1]
        return found

    def hear(self) -> list[str]:
        """All that systemd received so far."""
        while True:
            try:
                self.shown.append(self.listener.recv(4096).decode())
            except BlockingIOError:
                return self.shown

    def peers_of_caller(self) -> set[str]:
        """As whom the servers see a pod that connects to the service."""
        return set().union(*(self.cluster.world["caller"].ask(address, 80).peers for address in SHOP))

    def wait_for_new(self) -> None:
        """Until the service at NEW answers: the agent follows its source."""
        caller = self.cluster.world["caller"]
        self.agent.wait_until(lambda: not caller.ask(NEW[0], 80, timeout=0.2).failures, "the new service")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.agent.pid}/fd").iterdir()))


def write(path: Path, manifests: Path, **sections: dict[str, object]) -> None:
    """The configuration from now on."""
    head = {"apiVersion": "nodeagent.io/v1alpha1", "kind": "NodeAgentConfiguration"}
    path.write_text(json.dumps({**head, "source": {"manifests": str(manifests)}, **sections}))


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    for pod in PODS:
        cluster.world[pod].serve(TARGET_PORT, Protocol.TCP)
    cluster.expose("shop", *SHOP, pods=PODS)
    return cluster


@pytest.fixture(params=["owned", "plain"])
def reloadable(served: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Reloadable]:
    path = tmp_path / "nodeagent.yaml"
    write(path, served.manifests.path)
    flags = ["--config", str(path), "--node-name", NODE, "--table-ownership", request.param, *WITH_POD_CIDRS]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        agent = served.world.start(
            NODE, [*AGENT, "run", *flags], environment={"NOTIFY_SOCKET": str(tmp_path / "notify")}
        )
        agent.wait_for_line(" ready: ")
        yield Reloadable(served, path, listener, agent)
        if agent.running:
            agent.stop()
    served.call("cleanup")


def test_systemd_hears_of_start_and_stop(reloadable: Reloadable) -> None:
    assert reloadable.agent.stop() == 0
    waiting, ready, *_, stopping = reloadable.hear()
    assert waiting == f"STATUS=waiting for services and endpoints from manifests {reloadable.cluster.manifests.path}"
    assert ready == f"READY=1\nSTATUS={SERVED}"
    assert stopping.startswith("STOPPING=1\n")


def test_a_new_configuration_takes_effect_and_nothing_is_lost(reloadable: Reloadable) -> None:
    caller = set(reloadable.cluster.world["caller"].addresses)
    manifests = reloadable.cluster.manifests.path
    with uninterrupted(reloadable.cluster) as traffic:
        assert reloadable.peers_of_caller() == caller
        write(reloadable.path, manifests, traffic={"masqueradeAll": True})
        reloadable.reload(IN_FORCE)
        traffic.flow()
        assert not reloadable.peers_of_caller() & caller
        write(reloadable.path, manifests)
        reloadable.reload(IN_FORCE)
        traffic.flow()
        assert reloadable.peers_of_caller() == caller
    assert reloadable.hear()[-1] == f"READY=1\nSTATUS={SERVED}"


def test_a_reload_without_a_change_writes_nothing_and_leaves_nothing_open(reloadable: Reloadable) -> None:
    reloadable.reload(IN_FORCE)
    before = reloadable.open_files()
    with uninterrupted(reloadable.cluster):
        for _ in range(3):
            printed = len(reloadable.agent.lines)
            reloadable.reload(IN_FORCE)
            assert " elements=0 " in reloadable.agent.wait_for_line("sync done", after=printed)
    reloadable.agent.wait_until(lambda: reloadable.open_files() <= before, "the files of former agents are closed")


def test_another_source_takes_effect_and_is_followed(reloadable: Reloadable, tmp_path: Path) -> None:
    """The service is in both, so its connections go on; what the new one gets later comes too."""
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Cluster(reloadable.cluster.world, tmp_path / "elsewhere")
    elsewhere.expose("shop", *SHOP, pods=PODS)
    with uninterrupted(reloadable.cluster):
        write(reloadable.path, elsewhere.manifests.path)
        reloadable.reload(IN_FORCE)
        elsewhere.expose("new", *NEW, pods=["web-1"])
        reloadable.wait_for_new()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("{", "not valid YAML", id="not YAML"),
        pytest.param(
            '{"apiVersion": "nodeagent.io/v1alpha1", "kind": "NodeAgentConfiguration", "trafic": {}}',
            "trafic",
            id="unknown key",
        ),
        pytest.param(None, "No such file", id="gone"),
    ],
)
def test_a_configuration_that_cannot_be_used_changes_nothing(
    reloadable: Reloadable, text: str | None, reason: str
) -> None:
    good = reloadable.path.read_text()
    with uninterrupted(reloadable.cluster) as traffic:
        if text is None:
            reloadable.path.unlink()
        else:
            reloadable.path.write_text(text)
        assert reason in reloadable.reload(REFUSED)
        assert REFUSED in reloadable.hear()[-1]
        traffic.flow()
        new = reloadable.cluster.expose("new", *NEW, pods=["web-1"])
        reloadable.wait_for_new()
        reloadable.cluster.withdraw(new)
        reloadable.path.write_text(good)
        reloadable.reload(IN_FORCE)
        assert REFUSED not in reloadable.hear()[-1]


def test_a_source_that_cannot_be_read_changes_nothing(reloadable: Reloadable, tmp_path: Path) -> None:
    with uninterrupted(reloadable.cluster):
        write(reloadable.path, tmp_path / "nowhere")
        assert "nowhere: No such file or directory" in reloadable.reload(REFUSED)
        write(reloadable.path, reloadable.cluster.manifests.path)
        reloadable.reload(IN_FORCE)


def test_a_source_that_never_answers_changes_nothing(served: Cluster, tmp_path: Path) -> None:
    """The patience of a minute is half a second here."""
    path = tmp_path / "nodeagent.yaml"
    write(path, served.manifests.path)
    agent = served.world.start(NODE, [sys.executable, str(IMPATIENT), str(path)])
    agent.wait_for_line(" ready: ")
    with uninterrupted(served):
        write(path, served.manifests.path, source={"master": "http://192.168.0.77:6443"})
        agent.signal(signal.SIGHUP)
        assert "within 0.5 seconds" in agent.wait_for_line(REFUSED)
        new = served.expose("new", *NEW, pods=["web-1"])
        caller = served.world["caller"]
        agent.wait_until(lambda: not caller.ask(NEW[0], 80, timeout=0.2).failures, "the old agent goes on")
        served.withdraw(new)
    agent.kill()
    served.call("cleanup")


def test_two_signals_in_a_row_are_two_reloads_at_most(reloadable: Reloadable) -> None:
    with uninterrupted(reloadable.cluster):
        for _ in range(5):
            reloadable.agent.signal(signal.SIGHUP)
        reloadable.reload(IN_FORCE)
    assert reloadable.agent.stop() == 0
