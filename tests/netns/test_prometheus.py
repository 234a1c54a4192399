"""A real Prometheus scrapes an agent, and our alerts work in it: a planted fault fires its alert, which was silent before."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.lab.net.process import AgentProcess
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / ".tools" / "prometheus" / "prometheus"
PLACE = "127.0.0.1:9090"
PATIENCE = 60.0
SHOP = cluster_ips(1)


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    cluster.expose("shop", *SHOP, pods=["web-0"])
    return cluster.start_agent(*WITH_POD_CIDRS, "--table-ownership", "plain")


class Prometheus:
    """Asked on the node."""

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world

    def ask(self, path: str) -> Any:
        done = self._world.run(NODE, ["curl", "--silent", "--globoff", f"http://{PLACE}/api/v1/{path}"], check=False)
        return json.loads(done.stdout)["data"] if done.stdout.startswith("{") else None

    def wait(self, path: str, condition: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.ask(path)
            if answer is not None and condition(answer):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)

    def firing(self) -> set[str]:
        return {one["labels"]["alertname"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"}


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, agent: AgentProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    place = tmp_path_factory.mktemp("prometheus")
    rules = yaml.safe_load((ROOT / "docs" / "observability" / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)  # promtool tests how long each waits
    (place / "alerts.yaml").write_text(yaml.safe_dump(rules))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "nodeagent", "static_configs": [{"targets": ["127.0.0.1:10249"]}]}],
        "rule_files": [str(place / "alerts.yaml")],
    }
    (place / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [str(PROMETHEUS), f"--config.file={place}/prometheus.yaml", f"--storage.tsdb.path={place}/data"]
    inside = ["ip", "netns", "exec", cluster.world.namespace(NODE)]
    with (place / "log").open("w") as log:
        process = subprocess.Popen([*inside, *command, f"--web.listen-address={PLACE}"], stdout=log, stderr=log)
        try:
            yield Prometheus(cluster)
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

    agent.stop()
    prometheus.wait("alerts", lambda _: "NodeagentDown" in prometheus.firing())
