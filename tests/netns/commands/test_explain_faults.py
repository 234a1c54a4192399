"""Faults are planted in a world with packets, and the first line of `nodeagent explain` names each, and nothing else.

Every fault has a twin without it. What is said to fail fails for a client, and what is said to work works.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.net.process import AgentProcess
from nodeagent.lab.net.requests import Failure
from nodeagent.lab.net.world import World
from nodeagent.model.objects import (
    EndpointPort,
    EndpointSlice,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, WITH_POD_CIDRS, Cluster
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port
from tests.harness.warm_start import WarmLauncher

PATIENCE = 90.0
HTTP = (service_port(80, name="http"),)
HERE, THERE = ("10.244.1.10", NODE), ("10.244.2.10", "node-b")
VIP, TAKEN = "198.51.100.20", "198.51.100.30"
LOCAL = ServiceSpec(internal_traffic_policy="Local")


@dataclass(frozen=True)
class Planted:
    """A Service with a fault and its twin. says: what the first line has. client: who fails to connect, and where."""

    says: tuple[str, ...]
    spec: ServiceSpec | None = None
    places: tuple[tuple[str, str], ...] = (HERE, THERE)
    healed: tuple[tuple[str, str], ...] = (HERE, THERE)
    ready: bool = True
    port_name: str = "http"
    target_port: int = TARGET_PORT
    ports: tuple[ServicePort, ...] = HTTP
    fails: frozenset[Failure] = field(default=frozenset({Failure.REFUSED}))


FAULTS = {
    "selector": Planted(("has no endpoints", "its selector matches no pod"), places=()),
    "port-name": Planted(("no slice has a port http/TCP (the slices have www (8080/TCP))",), port_name="www"),
    "container-port": Planted(
        ("targetPort is the name web",), port_name="www", ports=(ServicePort(80, "http", "TCP", target_port="web"),)
    ),
    "target-port": Planted(("2 of 2 endpoints refuse connections", "nobody listens there"), target_port=9999),
    "not-ready": Planted(("none of its 2 endpoints is ready",), ready=False),
    "policy-local": Planted(
        ("internalTrafficPolicy is Local and none of its 1 endpoints is on node node-a",),
        spec=LOCAL,
        places=(THERE,),
        healed=(HERE,),
        fails=frozenset({Failure.TIMEOUT}),
    ),
}


class Told:
    """A node whose agent follows a directory of manifests, and `nodeagent explain` on it."""

    def __init__(self, cluster: Cluster, launcher: WarmLauncher, directory: Path) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.socket = directory / "agent.sock"
        self._launcher = launcher
        self.agent: AgentProcess | None = None

    def start(self) -> AgentProcess:
        ownership = "--table-ownership=plain"
        self.agent = self.cluster.start_agent(*WITH_POD_CIDRS, ownership, f"--socket={self.socket}")
        return self.agent

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._launcher.command(self.world.namespace(NODE), arguments)

    def explain(self, *arguments: str) -> tuple[int, str]:
        """Exit code and first line, as the agent has it."""
        done = self.run("explain", *arguments, "--socket", str(self.socket))
        return done.returncode, done.stdout.partition("\n")[0]

    def all(self) -> dict[str, str]:
        """Service → verdict, of those that are not healthy."""
        done = self.run("explain", "--probe", "-o", "json", "--socket", str(self.socket))
        document = json.loads(done.stdout)
        assert next(iter(document)) == "verdict"
        assert done.returncode == bool(document["services"]) == (not document["healthy"])
        return {one["service"]: one["verdict"] for one in document["services"]}

    def eventually(self, *arguments: str, says: tuple[str, ...]) -> int:
        """The exit code once the first line says this; what objects say now is programmed in a moment."""
        found: tuple[int, str] = (0, "")

        def said() -> bool:
            nonlocal found
            found = self.explain(*arguments)
            return all(text in found[1] for text in says)

        wait_for(said, lambda: f"{says} in {found}")
        return found[0]


def wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never: {what()}"
        time.sleep(0.05)


def address(number: int) -> str:
    return f"10.96.7.{number}"


def objects(name: str, ip: str, planted: Planted, *, healthy: bool) -> list[Service | EndpointSlice]:
    service = make_service(name, ip, ports=planted.ports, spec=planted.spec)
    places = planted.healed if healthy else planted.places
    endpoints = [make_endpoint(place, node, ready=healthy or planted.ready) for place, node in places]
    made = make_slice(service, endpoints, target_port=TARGET_PORT if healthy else planted.target_port)
    if healthy or not made.ports:
        return [service, made]
    ports = tuple(EndpointPort(planted.port_name, port.port, port.protocol) for port in made.ports)
    return [service, EndpointSlice(made.metadata, made.address_type, made.endpoints, ports)]


@pytest.fixture(scope="module")
def told(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """All faults and their twins are there, and an agent that has programmed them."""
    told = Told(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    told.world.write_sysctls(NODE, UNTHROTTLED)
    for pod in ("web-0", "far-0"):
        told.world[pod].serve(TARGET_PORT)
    for number, (name, planted) in enumerate(FAULTS.items()):
        cluster.manifests.put(*objects(name, address(2 * number + 1), planted, healthy=False))
        cluster.manifests.put(*objects(f"{name}-twin", address(2 * number + 2), planted, healthy=True))
    told.start()
    return told


def fate(told: Told, ip: str, member: str = "caller") -> Failure | None:
    return told.world[member].ask(ip, 80, timeout=2.0).only.failure


def test_each_fault_is_named_and_no_twin_is(told: Told) -> None:
    found = told.all()
    assert set(found) == {f"default/{name}" for name in FAULTS}
    for name, planted in FAULTS.items():
        verdict = found[f"default/{name}"]
        assert verdict.startswith("broken: ")
        for text in planted.says:
            assert text in verdict, verdict


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_said_is_what_becomes_of_connections(told: Told, name: str) -> None:
    number = list(FAULTS).index(name)
    assert fate(told, address(2 * number + 1)) in FAULTS[name].fails
    assert fate(told, address(2 * number + 2)) is None


@pytest.mark.parametrize("name", ["selector", "target-port"])
def test_of_one_service_the_first_line_says_it_too(told: Told, name: str) -> None:
    code, line = told.explain(name)
    assert (code, line.startswith("broken: ")) == (1, True)
    for text in FAULTS[name].says:
        assert text in line
    assert told.explain(f"{name}-twin:http") == (0, "healthy: 2 of 2 endpoints used")
    assert told.explain(f"default/{name}-twin:80") == (0, "healthy: 2 of 2 endpoints used")


def test_a_source_range_is_judged_for_a_client(told: Told) -> None:
    spec = ServiceSpec(load_balancer_source_ranges=("203.0.113.0/25",))
    plain = make_service("guarded", address(100), ports=HTTP, spec=spec)
    service = Service(plain.metadata, plain.spec, ServiceStatus(LoadBalancerStatus((LoadBalancerIngress(VIP),))))
    told.cluster.manifests.put(make_slice(service, [make_endpoint(*HERE)], target_port=TARGET_PORT), service)
    outside = told.world["outside"].addresses[0]
    assert told.eventually("guarded", says=(f"healthy: 1 of 1 endpoints used; {VIP}:80/TCP is only for",)) == 0
    assert told.eventually("guarded", "--from", outside, says=("healthy: ",)) == 0
    assert fate(told, VIP, "outside") is None
    assert told.eventually("guarded", "--from", "192.0.2.7", says=("broken: 192.0.2.7 cannot connect",)) == 1

    narrow = ServiceSpec(**{**fields(service.spec), "load_balancer_source_ranges": ("192.0.2.0/24",)})
    told.cluster.manifests.put(Service(service.metadata, narrow, service.status))
    says = (f"broken: {outside} cannot connect to {VIP}:80/TCP", "loadBalancerSourceRanges has only 192.0.2.0/24")
    assert told.eventually("guarded", "--from", outside, says=says) == 1
    assert fate(told, VIP, "outside") is Failure.TIMEOUT


def fields(spec: ServiceSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


def test_of_two_services_on_one_address_the_loser_is_told(told: Told) -> None:
    spec = ServiceSpec(external_ips=(TAKEN,))
    for number, name in enumerate(("claim-a", "claim-b")):
        service = make_service(name, address(110 + number), ports=HTTP, spec=spec)
        told.cluster.manifests.put(make_slice(service, [make_endpoint(*HERE)], target_port=TARGET_PORT), service)
    says = (f"impaired: ExternalIP {TAKEN} port 80/TCP does not lead to it", "Service default/claim-a has that address")
    assert told.eventually("claim-b", says=says) == 1
    assert told.eventually("claim-a", says=("healthy: 1 of 1 endpoints used",)) == 0
    told.cluster.manifests.put(make_service("claim-a", address(110), ports=HTTP))
    assert told.eventually("claim-b", says=("healthy: 1 of 1 endpoints used",)) == 0


def test_a_table_that_another_flushed_is_told_while_no_agent_repairs_it(told: Told) -> None:
    assert told.agent is not None
    twin = ("selector-twin", "--manifests", str(told.cluster.manifests.path), "--node-name", NODE)
    told.agent.signal(signal.SIGKILL)
    wait_for(lambda: not told.agent.running if told.agent else False, lambda: "the agent ends")
    assert first_line(told, *twin) == (0, "healthy: 2 of 2 endpoints used")

    told.world.run(NODE, ["nft", "flush", "map", "ip", "nodeagent", "frontends"])
    code, line = first_line(told, *twin)
    assert (code, "frontends { 10.96.7.2 . tcp . 80 } is missing" in line) == (1, True), line
    told.world.run(NODE, ["nft", "flush", "ruleset"])
    code, line = first_line(told, *twin)
    assert code == 1
    assert line.startswith(
        "broken: its IPv4 addresses do not work on this node, because table ip nodeagent is not there"
    )

    told.start()
    assert told.eventually("selector-twin", says=("healthy: 2 of 2 endpoints used",)) == 0


def first_line(told: Told, *arguments: str) -> tuple[int, str]:
    done = told.run("explain", *arguments)
    return done.returncode, done.stdout.partition("\n")[0]


def test_rules_that_another_flushed_are_told(told: Told) -> None:
    """While the agent stands still; it puts them right when it goes on."""
    assert told.agent is not None
    told.agent.signal(signal.SIGSTOP)
    try:
        told.world.run(NODE, ["nft", "flush", "table", "ip", "nodeagent"])
        code, line = first_line(
            told, "selector-twin", "--manifests", str(told.cluster.manifests.path), "--node-name", NODE
        )
        assert code == 1
        assert "because table ip nodeagent is there, without the rules that the agent writes" in line
    finally:
        told.agent.signal(signal.SIGCONT)
    assert told.eventually("selector-twin", says=("healthy: 2 of 2 endpoints used",)) == 0


def test_the_agent_says_what_it_did_and_what_is_wrong(told: Told) -> None:
    spec = ServiceSpec(external_ips=("not an address",))
    told.cluster.manifests.put(make_service("odd", address(120), ports=HTTP, spec=spec))
    at = ("--socket", str(told.socket))

    def odd() -> list[dict[str, str]]:
        listed = json.loads(told.run("problems", "-o", "json", *at).stdout)
        return [one for one in listed if one["subject"] == "Service default/odd"]

    wait_for(lambda: bool(odd()), lambda: "the problem")
    (problem,) = odd()
    assert problem["reason"] == "InvalidAddress"
    assert problem["since"].startswith("20")
    assert told.run("problems", *at).returncode == 1
    assert "Service default/odd" in told.run("problems", "-o", "name", *at).stdout.splitlines()

    def last() -> dict[str, Any]:
        rows = json.loads(told.run("journal", "--last", "1", "-o", "json", *at).stdout)
        return dict(rows[-1])

    wait_for(lambda: "default/odd" in last()["names"], lambda: f"the pass in {last()}")
    assert last()["elements"] >= 1
    assert last()["milliseconds"] > 0
    told.cluster.manifests.remove(make_service("odd", address(120)))
    wait_for(lambda: not odd(), lambda: "its end")
    done = told.run("diff", *at)
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "same")


def test_the_level_of_the_log_is_changed_while_the_agent_runs(told: Told) -> None:
    at = ("--socket", str(told.socket))
    assert told.agent is not None
    assert told.run("log-level", *at).stdout == "info\n"
    assert told.run("log-level", "debug", *at).stdout == "debug\n"
    told.cluster.manifests.put(make_service("more", address(121), ports=HTTP))
    told.agent.wait_for_line("pass done ")
    assert told.run("log-level", "info", *at).stdout == "info\n"


def test_the_shell_completes_names_of_services(told: Told, tmp_path: Path) -> None:
    words = f"nodeagent explain --socket {told.socket} not-re"
    environment = {"_NODEAGENT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    done = told._launcher.command(told.world.namespace(NODE), (), environment={**os.environ, **environment})
    assert done.stdout.split() == ["plain,not-ready", "plain,not-ready-twin"]


def test_who_is_not_there_is_one_line(told: Told, tmp_path: Path) -> None:
    done = told.run("explain", "--socket", str(tmp_path / "none.sock"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"nodeagent: no agent answers at {tmp_path}/none.sock: No such file or directory: ")
    assert told.run("journal", "--socket", str(tmp_path / "none.sock")).returncode == 1


def test_top_has_the_service_that_gets_connections_first(told: Told) -> None:
    """Connections are made all the while between its two looks."""
    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(told.run, "top", "--once", "--every", "1", "-o", "json")
        while not looking.done():
            told.world["caller"].ask(address(2), 80, count=5)
    done = looking.result()
    rows = json.loads(done.stdout)
    assert rows[0]["service"] == "default/selector-twin:http"
    assert rows[0]["rate"] > 0
    assert rows[0]["total"] >= 5
    assert {row["rate"] for row in rows[1:]} == {0.0}


TROUBLESHOOTING = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
DOCUMENTED = {
    "cart": "selector",
    "api": "port-name",
    "web": "target-port",
    "login": "not-ready",
    "files": "policy-local",
}
"""Service in the document → the fault that is planted for it."""


def documented() -> list[tuple[list[str], str]]:
    """Each command of the document, and how the first line that it prints begins."""
    lines = [line.strip() for line in TROUBLESHOOTING.read_text().splitlines() if line.startswith("    ")]
    starts = [number for number, line in enumerate(lines) if line.startswith("$ nodeagent ")]
    return [(lines[number].split()[2:], lines[number + 1]) for number in starts]


@pytest.fixture(scope="module")
def troubled(told: Told) -> Told:
    """The Services that the document speaks of."""
    manifests = told.cluster.manifests
    for number, (name, fault) in enumerate(DOCUMENTED.items()):
        manifests.put(*objects(name, address(200 + number), FAULTS[fault], healthy=False))
    balanced = ServiceStatus(LoadBalancerStatus((LoadBalancerIngress("198.51.100.40"),)))
    for number, name, spec, status in (
        (210, "shop", ServiceSpec(load_balancer_source_ranges=("203.0.113.0/26",)), balanced),
        (211, "first", ServiceSpec(external_ips=("198.51.100.41",)), None),
        (212, "other", ServiceSpec(external_ips=("198.51.100.41",)), None),
    ):
        plain = make_service(name, address(number), ports=HTTP, spec=spec)
        service = Service(plain.metadata, plain.spec, status)
        manifests.put(make_slice(service, [make_endpoint(*HERE)], target_port=TARGET_PORT), service)
    return told


def test_the_document_has_every_fault_that_it_can_have() -> None:
    asked = {arguments[1] for arguments, _ in documented() if arguments[0] == "explain" and len(arguments) > 1}
    assert asked == {*DOCUMENTED, "shop", "other"}
    assert len(documented()) >= 14


@pytest.mark.parametrize(("arguments", "begins"), documented(), ids=lambda value: " ".join(value)[:40])
def test_the_commands_of_the_document_say_what_it_says(troubled: Told, arguments: list[str], begins: str) -> None:
    """They end with 0 exactly when that is good news. The agent is found at its socket here, where more than one may be."""
    own = ("--socket", str(troubled.socket)) if arguments[0] != "plan" else ("--node-name", NODE)
    root = str(TROUBLESHOOTING.parents[1])
    found = ""

    def said() -> bool:
        nonlocal found
        done = troubled._launcher.command(troubled.world.namespace(NODE), (*arguments, *own), directory=root)
        found = f"{done.returncode} {done.stdout.partition(chr(10))[0]} {done.stderr}"
        good = not begins.startswith(("broken", "impaired", "not healthy", "…"))
        head = begins.partition("…")[0].rstrip()
        end = begins.rpartition("…")[2].strip() if begins.startswith("…") else ""
        line = done.stdout.partition("\n")[0]
        return done.returncode == (not good) and line.startswith(head) and line.endswith(end)

    wait_for(said, lambda: f"{arguments}: {begins}: {found}")
