"""A real Prometheus scrapes an agent, and our alerts work in it: a planted fault fires its alert, which was silent before."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodeagent.model.objects import ANNOTATION_TRIGGER_TIME, ServiceSpec
from nodeagent.proxy.dataplane.program.schema import AFFINITY_SIZE
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / ".tools" / "prometheus" / "prometheus"
PLACE = "127.0.0.1:9090"
METRICS, METRICS_OF_OTHER = "127.0.0.1:10249", "127.0.0.1:10250"
PATIENCE = 90.0
SHOP = cluster_ips(1)
SILENT_SECONDS, SILENT_HERE_SECONDS = 900, 75
"""After how long a watch is called silent, and here, where nobody has a quarter of an hour: more than the minute in which every
server says something."""
MINUTES = 200.0
"""Longer than the minute that some alerts look back."""


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    cluster.expose("shop", *SHOP, pods=["web-0"])
    return cluster.start_agent(*WITH_POD_CIDRS, "--table-ownership", "plain")


@pytest.fixture(scope="module")
def running_since(agent: AgentProcess) -> datetime:
    """A moment after the agent's start."""
    return datetime.now(UTC)


class Prometheus:
    """Asked on the node."""

    def __init__(self, cluster: Cluster, targets: Path) -> None:
        self._world = cluster.world
        self._targets = targets

    def scrape_other(self) -> None:
        """From now on another agent's metrics, too."""
        half = self._targets.with_suffix(".new")
        half.write_text(json.dumps([{"targets": [METRICS, METRICS_OF_OTHER]}]))
        half.replace(self._targets)

    def ask(self, path: str) -> Any:
        done = self._world.run(NODE, ["curl", "--silent", "--globoff", f"http://{PLACE}/api/v1/{path}"], check=False)
        return json.loads(done.stdout)["data"] if done.stdout.startswith("{") else None

    def wait(self, path: str, condition: Callable[[Any], bool], seconds: float = PATIENCE) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            answer = self.ask(path)
            if answer is not None and condition(answer):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)

    def firing(self) -> set[str]:
        return {one["labels"]["alertname"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"}


@pytest.fixture(scope="module")
def prometheus(
    cluster: Cluster, agent: AgentProcess, running_since: datetime, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    place = tmp_path_factory.mktemp("prometheus")
    rules = yaml.safe_load((ROOT / "docs" / "observability" / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)  # promtool tests how long each waits
        if rule["alert"] == "NodeagentWatchSilent":
            assert rule["expr"].endswith(f" > {SILENT_SECONDS}")
            rule["expr"] = rule["expr"].replace(f"> {SILENT_SECONDS}", f"> {SILENT_HERE_SECONDS}")
    (place / "alerts.yaml").write_text(yaml.safe_dump(rules))
    targets = place / "targets.json"
    targets.write_text(json.dumps([{"targets": [METRICS]}]))
    discovery = {"files": [str(targets)], "refresh_interval": "1s"}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "nodeagent", "file_sd_configs": [discovery]}],
        "rule_files": [str(place / "alerts.yaml")],
    }
    (place / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [str(PROMETHEUS), f"--config.file={place}/prometheus.yaml", f"--storage.tsdb.path={place}/data"]
    inside = ["ip", "netns", "exec", cluster.world.namespace(NODE)]
    with (place / "log").open("w") as log:
        process = subprocess.Popen([*inside, *command, f"--web.listen-address={PLACE}"], stdout=log, stderr=log)
        try:
            yield Prometheus(cluster, targets)
        finally:
            process.terminate()
            process.wait()


def test_a_scrape_is_taken_in(prometheus: Prometheus) -> None:
    path = "query?query=count({__name__=~%22(nodeagent|kubeproxy)_.*%22,job=%22nodeagent%22})"
    answer = prometheus.wait(path, lambda answer: bool(answer["result"]))
    assert int(answer["result"][0]["value"][1]) > 100
    targets = prometheus.wait("targets", lambda answer: answer["activeTargets"][0]["health"] == "up")
    assert targets["activeTargets"][0]["lastError"] == ""


def test_planted_faults_fire_their_alerts(cluster: Cluster, agent: AgentProcess, prometheus: Prometheus) -> None:
    prometheus.wait("rules", lambda answer: all(rule["health"] == "ok" for rule in answer["groups"][0]["rules"]))
    assert prometheus.firing() == set()

    cluster.expose("rival", *SHOP, pods=["web-1"])
    agent.wait_for_line("problem: ")
    prometheus.wait("alerts", lambda _: "NodeagentProblems" in prometheus.firing())
    assert prometheus.firing() == {"NodeagentProblems"}

    printed = len(agent.lines)
    for _ in range(4):
        cluster.world.nft(NODE, "flush ruleset")
        agent.wait_for_line("was changed by another process", after=printed)
        printed = len(agent.lines)
        time.sleep(1.1)  # Prometheus sees a counter grow only between two scrapes
    prometheus.wait("alerts", lambda _: "NodeagentInterfered" in prometheus.firing())


@pytest.mark.at_length
def test_an_interface_that_is_not_repaired_fires(cluster: Cluster, agent: AgentProcess, prometheus: Prometheus) -> None:
    prometheus.wait("alerts", lambda _: "NodeagentNotRepaired" not in prometheus.firing())
    agent.signal(signal.SIGSTOP)  # it would be faster than the second command
    try:
        other = "ip link delete nodeagent0; ip link add nodeagent0 type veth peer name another"
        cluster.world.run(NODE, ["bash", "-ec", other])
    finally:
        agent.signal(signal.SIGCONT)
    agent.wait_for_line("interface nodeagent0 is not the agent's")
    prometheus.wait("alerts", lambda _: "NodeagentNotRepaired" in prometheus.firing())
    cluster.world.run(NODE, ["ip", "link", "delete", "nodeagent0"])
    prometheus.wait("alerts", lambda _: "NodeagentNotRepaired" not in prometheus.firing())


@pytest.mark.at_length
def test_a_loop_that_is_late_fires(agent: AgentProcess, prometheus: Prometheus) -> None:
    assert "NodeagentLoopLate" not in prometheus.firing()
    deadline = time.monotonic() + PATIENCE
    while "NodeagentLoopLate" not in prometheus.firing():
        assert time.monotonic() < deadline
        agent.signal(signal.SIGSTOP)
        time.sleep(0.9)  # that late
        agent.signal(signal.SIGCONT)
        time.sleep(0.3)  # a scrape falls into some of these


@pytest.mark.at_length
def test_endpoints_that_come_late_fire(cluster: Cluster, running_since: datetime, prometheus: Prometheus) -> None:
    """The control plane says when it saw the change: after the agent's start, and more than ten seconds ago."""
    assert "NodeagentProgrammingSlow" not in prometheus.firing()
    service = cluster.expose("late", *cluster_ips(7))
    first, *_ = make_slices(service, [(cluster.world["web-0"].addresses, NODE)], target_port=8080)
    annotations = {ANNOTATION_TRIGGER_TIME: running_since.isoformat()}
    while datetime.now(UTC) - running_since < timedelta(seconds=12):
        time.sleep(0.5)
    cluster.manifests.put(replace(first, metadata=replace(first.metadata, annotations=annotations)))
    prometheus.wait("alerts", lambda _: "NodeagentProgrammingSlow" in prometheus.firing())


@pytest.mark.at_length
def test_an_api_server_that_does_not_answer_fires(cluster: Cluster, prometheus: Prometheus, tmp_path: Path) -> None:
    """Asked by another agent on another node of the world."""
    assert "NodeagentApiErrors" not in prometheus.firing()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "a",
                "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "users": [{"name": "a", "user": {}}],
            }
        )
    )
    flags = (f"--kubeconfig={kubeconfig}", "--node-name=node-b", f"--metrics-bind-address={METRICS_OF_OTHER}")
    beside = ("--healthz-bind-address=", f"--socket={tmp_path}/agent.sock", *WITH_POD_CIDRS)
    other = cluster.world.start(NODE, [*AGENT, "run", *flags, *beside])
    try:
        prometheus.scrape_other()
        prometheus.wait("alerts", lambda _: "NodeagentApiErrors" in prometheus.firing())
    finally:
        other.stop()


def silent(prometheus: Prometheus, *names: str) -> None:
    """That none of these fires, once Prometheus judges its rules."""
    prometheus.wait("rules", lambda answer: all(rule["health"] == "ok" for rule in answer["groups"][0]["rules"]))
    assert not prometheus.firing() & set(names)


def until(prometheus: Prometheus, name: str, *, firing: bool = True) -> None:
    prometheus.wait("alerts", lambda _: (name in prometheus.firing()) is firing, MINUTES)


UNMERGED = """
from nodeagent.proxy.translate import {module}
{module}.merged = lambda networks: tuple(map(str, networks))
from nodeagent.cli.main import main
main(prog_name="nodeagent")
"""
"""An agent that gives the kernel ranges which overlap, of what a module translates. No object leads to elements that the kernel
refuses."""


def unmerged(module: str) -> list[str]:
    return [sys.executable, "-c", UNMERGED.format(module=module)]


@contextmanager
def in_its_place(
    cluster: Cluster, agent: AgentProcess, directory: Path, program: list[str], *flags: str
) -> Iterator[AgentProcess]:
    """Another agent of the same metrics' address; the first one again in the end."""
    agent.stop()
    sources = ("--manifests", str(cluster.manifests.path), "--node-name", NODE, "--table-ownership=plain")
    other = cluster.world.start(NODE, [*program, "run", *sources, *namespaced_path(directory, METRICS), *flags])
    try:
        yield other
    finally:
        other.stop()
        printed = len(agent.lines)
        agent.restart()
        agent.wait_for_line(" ready: ", after=printed)


def namespaced_path(directory: Path, metrics: str = METRICS_OF_OTHER) -> tuple[str, ...]:
    """Flags of another agent on the same node."""
    return (
        f"--metrics-bind-address={metrics}",
        "--healthz-bind-address=",
        f"--socket={directory}/agent.sock",
        *WITH_POD_CIDRS,
    )


@pytest.mark.at_length
def test_a_pass_that_the_kernel_refuses_fires(
    cluster: Cluster, agent: AgentProcess, prometheus: Prometheus, tmp_path: Path
) -> None:
    silent(prometheus, "NodeagentSyncFails")
    ranges = "--service-cidr=10.96.0.0/16,10.96.64.0/18"
    with in_its_place(cluster, agent, tmp_path, unmerged("node"), ranges) as other:
        other.wait_for_line("programming IPv4 failed")
        until(prometheus, "NodeagentSyncFails")


@pytest.mark.at_length
def test_a_change_that_waits_fires(
    cluster: Cluster, agent: AgentProcess, prometheus: Prometheus, tmp_path: Path
) -> None:
    """For passes that come every two minutes."""
    silent(prometheus, "NodeagentChangesWait")
    with in_its_place(cluster, agent, tmp_path, [*AGENT], "--min-sync-period=2m", "--sync-period=3m") as other:
        other.wait_for_line(" ready: ")
        for number in (11, 12):
            cluster.expose(f"waits-{number}", *cluster_ips(number), pods=["web-0"])
            time.sleep(1.0)  # the first is not held up
        until(prometheus, "NodeagentChangesWait")
        until(prometheus, "NodeagentChangesWait", firing=False)


@pytest.mark.at_length
def test_clients_that_fill_the_memory_of_affinity_fire(
    cluster: Cluster, agent: AgentProcess, prometheus: Prometheus
) -> None:
    """One is remembered for real; the others are entered as it was."""
    world = cluster.world
    silent(prometheus, "NodeagentAffinityFull")
    world["web-0"].serve(8080)
    cluster.expose("sticky", *cluster_ips(9), pods=["web-0"], spec=ServiceSpec(session_affinity="ClientIP"))
    deadline = time.monotonic() + PATIENCE
    client, listed = world["caller"].address(), ""
    while client not in listed:
        assert time.monotonic() < deadline, listed
        world["caller"].ask(cluster_ips(9)[0], 80, timeout=2.0)
        listed = world.run(NODE, ["nft", "list", "map", "ip", "nodeagent", "affinity"]).stdout
    found = re.search(rf"{re.escape(client)} (.*?) : ([^,}}]*)", listed)
    assert found is not None, listed
    key, value = re.split(r" (?:timeout|expires|counter) ", found[1])[0].strip(), found[2].strip()
    clients = (ip_address(int(ip_address("172.16.0.0")) + number) for number in range(int(AFFINITY_SIZE * 0.92)))
    elements = ", ".join(f"{each} {key} timeout 1h : {value}" for each in clients)
    world.nft(NODE, f"add element ip nodeagent affinity {{ {elements} }}")
    until(prometheus, "NodeagentAffinityFull")
    world.run(NODE, ["nft", "flush", "map", "ip", "nodeagent", "affinity"])
    until(prometheus, "NodeagentAffinityFull", firing=False)


@pytest.mark.at_length
def test_a_service_that_the_kernel_refuses_fires(
    cluster: Cluster, agent: AgentProcess, prometheus: Prometheus, tmp_path: Path
) -> None:
    silent(prometheus, "NodeagentServiceRejected")
    spec = ServiceSpec(load_balancer_source_ranges=("203.0.113.0/24", "203.0.113.128/25"))
    bad = make_service("bad", *cluster_ips(10), load_balancer_ips=("198.51.100.60",), spec=spec)
    cluster.manifests.put(bad)
    with in_its_place(cluster, agent, tmp_path, unmerged("source_ranges")) as other:
        other.wait_for_line("RejectedByKernel")
        until(prometheus, "NodeagentServiceRejected")
        cluster.manifests.remove(bad)
        until(prometheus, "NodeagentServiceRejected", firing=False)


@pytest.mark.at_length
def test_an_api_server_that_stands_still_fires(
    cluster: Cluster, agent: AgentProcess, prometheus: Prometheus, tmp_path: Path
) -> None:
    """Its connections stay open, and it says nothing any more."""
    kubeconfig = tmp_path / "kubeconfig"
    listen = ("--listen=127.0.0.1:0", "--insecure", f"--kubeconfig-out={kubeconfig}")
    server = cluster.world.start(NODE, [*AGENT, "apiserver", *listen])
    server.wait_for_line("listening|serving|ready")
    agent.stop()
    sources = (f"--kubeconfig={kubeconfig}", "--node-name=node-a", "--table-ownership=plain")
    other = cluster.world.start(NODE, [*AGENT, "run", *sources, *namespaced_path(tmp_path)])
    try:
        other.wait_for_line(" ready: ")
        prometheus.scrape_other()
        heard = "query?query=max(nodeagent_watch_age_seconds)"
        prometheus.wait(heard, lambda answer: bool(answer["result"]))
        silent(prometheus, "NodeagentWatchSilent")
        server.signal(signal.SIGSTOP)
        until(prometheus, "NodeagentWatchSilent")
        server.signal(signal.SIGCONT)
        until(prometheus, "NodeagentWatchSilent", firing=False)
    finally:
        other.stop()
        server.signal(signal.SIGCONT)
        server.stop()
        agent.restart()
    agent.wait_for_line(" ready: ")


def test_an_agent_that_is_gone_fires(agent: AgentProcess, prometheus: Prometheus) -> None:
    agent.stop()
    down = "query?query=ALERTS{alertname=%22NodeagentDown%22,alertstate=%22firing%22,instance=%22127.0.0.1:10249%22}"
    prometheus.wait(down, lambda answer: bool(answer["result"]))
