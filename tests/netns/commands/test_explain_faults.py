"""Faults are planted in a world with packets, and the first line of `nodeagent explain` names each, and nothing else.

Every fault has a twin without it. What is said to fail fails for a client, and what is said to work works.
"""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.topology import NO_BRIDGE
from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceSpec,
    ServiceStatus,
)
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, Cluster
from tests.harness.documented_commands import ROOT, run_by
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import PATIENCE, WatchedNode, wait_for
from tests.netns.commands.planted import FAULTS, HERE, HTTP, NOWHERE, TAKEN_PORT, address, objects

pytestmark = pytest.mark.slow

BRIDGE = NO_BRIDGE
VIP, TAKEN = "198.51.100.20", "198.51.100.30"
HEALTH_PORT = 32101


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    """All faults and their twins are there, and an agent that has programmed them."""
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    watched.world.write_sysctls(NODE, UNTHROTTLED)
    for pod in ("web-0", "far-0"):
        watched.world[pod].serve(TARGET_PORT)
    for number, (name, planted) in enumerate(FAULTS.items()):
        cluster.manifests.put(*objects(name, address(2 * number + 1), planted, healthy=False))
        cluster.manifests.put(*objects(f"{name}-twin", address(2 * number + 2), planted, healthy=True))
    ported = make_service("ported", address(150), ports=(service_port(80, name="http", node_port=TAKEN_PORT),))
    cluster.manifests.put(make_slice(ported, [make_endpoint(*HERE)], target_port=TARGET_PORT), ported)
    watched.world.run(NODE, ["ip", "route", "add", "unreachable", NOWHERE])
    watched.start()
    return watched


def fate(watched: WatchedNode, ip: str, member: str = "caller") -> Failure | None:
    return watched.world[member].ask(ip, 80, timeout=2.0).only.failure


def test_each_fault_is_named_and_no_twin_is(watched: WatchedNode) -> None:
    found = watched.all()
    assert set(found) == {f"default/{name}" for name in FAULTS}
    for name, planted in FAULTS.items():
        verdict = found[f"default/{name}"]
        assert verdict.startswith("broken: ")
        for text in planted.says:
            assert text in verdict, verdict


@pytest.mark.parametrize("name", FAULTS)
def test_explain_agrees_with_real_connections(watched: WatchedNode, name: str) -> None:
    number = list(FAULTS).index(name)
    assert fate(watched, address(2 * number + 1)) in FAULTS[name].fails
    assert fate(watched, address(2 * number + 2)) is None


@pytest.mark.parametrize("name", ["selector", "target-port", "label", "cluster-ip", "node-port"])
def test_the_first_line_about_one_service_says_it(watched: WatchedNode, name: str) -> None:
    code, line = watched.explain(name)
    assert (code, line.startswith("broken: ")) == (1, True)
    for text in FAULTS[name].says:
        assert text in line
    assert watched.explain(f"{name}-twin:http") == (0, "healthy: 2 of 2 endpoints used")
    assert watched.explain(f"default/{name}-twin:80") == (0, "healthy: 2 of 2 endpoints used")


SHUT = "table inet shut { chain i { type filter hook input priority 0; tcp dport 8080 drop; }; }"


def test_endpoints_that_are_silent(watched: WatchedNode) -> None:
    """They drop what comes from this node, and nobody says so."""
    service = make_service("quiet", address(130), ports=HTTP)
    watched.world["web-1"].serve(TARGET_PORT)
    made = make_slice(service, [make_endpoint("10.244.1.11", NODE)], target_port=TARGET_PORT)
    watched.cluster.manifests.put(made, service)
    assert watched.eventually("quiet", says=("healthy: 1 of 1 endpoints used",)) == 0
    assert fate(watched, address(130), NODE) is None
    watched.world.nft("web-1", SHUT)
    code, line = watched.explain("quiet")
    assert (code, line.startswith("impaired: 1 of 1 endpoints do not answer this node, because nothing came back")) == (
        1,
        True,
    )
    assert "10.244.1.11:8080" in line
    assert fate(watched, address(130), NODE) is Failure.TIMEOUT
    watched.world.nft("web-1", "delete table inet shut")
    assert watched.eventually("quiet", says=("healthy: 1 of 1 endpoints used",)) == 0
    watched.cluster.manifests.remove(service, made)


def test_endpoints_whose_host_is_gone_are_not_those_that_a_policy_forbids(watched: WatchedNode) -> None:
    """Both say nothing. The kernel knows whether anybody answers for the address."""
    service = make_service("gone", address(131), ports=HTTP)
    made = make_slice(service, [make_endpoint("10.244.1.12", NODE)], target_port=TARGET_PORT)
    watched.world["web-2"].serve(TARGET_PORT)
    watched.cluster.manifests.put(made, service)
    assert watched.eventually("gone", says=("healthy: 1 of 1 endpoints used",)) == 0
    watched.world.run("web-2", ["ip", "link", "set", "eth0", "arp", "off"])
    watched.world.run(NODE, ["ip", "neigh", "flush", "dev", "web-2"])
    says = ("broken: 1 of 1 endpoints cannot be reached", "no host answers for 10.244.1.12 on web-2: it is down")
    assert watched.eventually("gone", says=says) == 1
    watched.world.run("web-2", ["ip", "link", "set", "eth0", "arp", "on"])
    assert watched.eventually("gone", says=("healthy: 1 of 1 endpoints used",)) == 0

    watched.world.run(NODE, ["ip", "route", "del", "10.244.1.12", "dev", "web-2"])
    says = (
        f"broken: connections of this node to {address(131)}:80/TCP fail, because 10.244.1.12 is on this node",
        "10.244.1.12 is on this node, and the route to it leads out by eth0 via 169.254.1.1: its own interface or route is gone",
    )
    assert watched.eventually("gone", says=says) == 1
    assert fate(watched, address(131)) is not None
    watched.world.run(NODE, ["ip", "route", "add", "10.244.1.12", "dev", "web-2"])
    assert watched.eventually("gone", says=("healthy: 1 of 1 endpoints used",)) == 0

    watched.world.nft("web-2", SHUT)
    watched.world.run(NODE, ["ip", "neigh", "flush", "dev", "web-2"])
    says = (
        "impaired: 1 of 1 endpoints do not answer this node",
        "10.244.1.12 is there: what drops it is there or behind",
    )
    assert watched.eventually("gone", says=says) == 1
    watched.cluster.manifests.remove(service, made)


def test_datagrams_that_nobody_waits_for(watched: WatchedNode) -> None:
    """The pod's host reports that nobody listens; it does not report that somebody does."""
    service = make_service("datagrams", address(132), ports=(service_port(80, Protocol.UDP, name="http"),))
    made = make_slice(service, [make_endpoint("10.244.1.11", NODE)], target_port=TARGET_PORT)
    watched.cluster.manifests.put(made, service)
    says = ("broken: 1 of 1 endpoints refuse connections", "nobody listens there: 10.244.1.11:8080")
    assert watched.eventually("datagrams", says=says) == 1
    asked = watched.world["caller"].ask(address(132), 80, Protocol.UDP, timeout=PATIENCE).only
    assert asked.failure is Failure.REFUSED
    with watched.world["web-1"].serve(TARGET_PORT, Protocol.UDP):
        assert watched.eventually("datagrams", says=("healthy: 1 of 1 endpoints used",)) == 0
        assert watched.world["caller"].ask(address(132), 80, Protocol.UDP, timeout=PATIENCE).only.failure is None
    watched.cluster.manifests.remove(service, made)


def test_a_service_that_its_label_leaves_to_others(watched: WatchedNode) -> None:
    made = make_service("left", address(133), ports=HTTP)
    labels = {"service.kubernetes.io/service-proxy-name": "mesh"}
    left = Service(replace(made.metadata, labels=labels), made.spec)
    watched.cluster.manifests.put(left)
    code, line = first_line(watched, "left", "--manifests", str(watched.cluster.manifests.path), "--node-name", NODE)
    assert (code, line.startswith("broken: this agent does not serve it, because its label")) == (1, True), line
    assert fate(watched, address(133)) is not None
    watched.cluster.manifests.remove(left)


def test_a_source_range_is_judged_for_a_client(watched: WatchedNode) -> None:
    spec = ServiceSpec(load_balancer_source_ranges=("203.0.113.0/25",))
    plain = make_service("guarded", address(100), ports=HTTP, spec=spec)
    service = Service(plain.metadata, plain.spec, ServiceStatus(LoadBalancerStatus((LoadBalancerIngress(VIP),))))
    watched.cluster.manifests.put(make_slice(service, [make_endpoint(*HERE)], target_port=TARGET_PORT), service)
    outside = watched.world["outside"].addresses[0]
    assert watched.eventually("guarded", says=(f"healthy: 1 of 1 endpoints used; {VIP}:80/TCP is only for",)) == 0
    assert watched.eventually("guarded", "--from", outside, says=("healthy: ",)) == 0
    assert fate(watched, VIP, "outside") is None
    assert watched.eventually("guarded", "--from", "192.0.2.7", says=("broken: 192.0.2.7 cannot connect",)) == 1

    narrow = ServiceSpec(**{**fields(service.spec), "load_balancer_source_ranges": ("192.0.2.0/24",)})
    watched.cluster.manifests.put(Service(service.metadata, narrow, service.status))
    says = (f"broken: {outside} cannot connect to {VIP}:80/TCP", "loadBalancerSourceRanges has only 192.0.2.0/24")
    assert watched.eventually("guarded", "--from", outside, says=says) == 1
    assert fate(watched, VIP, "outside") is Failure.TIMEOUT


def fields(spec: ServiceSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


def test_of_two_services_on_one_address_the_loser_is_named(watched: WatchedNode) -> None:
    spec = ServiceSpec(external_ips=(TAKEN,))
    for number, name in enumerate(("claim-a", "claim-b")):
        service = make_service(name, address(110 + number), ports=HTTP, spec=spec)
        watched.cluster.manifests.put(make_slice(service, [make_endpoint(*HERE)], target_port=TARGET_PORT), service)
    says = (f"impaired: ExternalIP {TAKEN} port 80/TCP does not lead to it", "Service default/claim-a has that address")
    assert watched.eventually("claim-b", says=says) == 1
    assert watched.eventually("claim-a", says=("healthy: 1 of 1 endpoints used",)) == 0
    watched.cluster.manifests.put(make_service("claim-a", address(110), ports=HTTP))
    assert watched.eventually("claim-b", says=("healthy: 1 of 1 endpoints used",)) == 0


def test_a_table_that_another_program_flushed_is_named_while_no_agent_repairs_it(watched: WatchedNode) -> None:
    assert watched.agent is not None
    twin = ("selector-twin", "--manifests", str(watched.cluster.manifests.path), "--node-name", NODE)
    watched.agent.signal(signal.SIGKILL)
    wait_for(lambda: not watched.agent.running if watched.agent else False, lambda: "the agent ends")
    assert first_line(watched, *twin) == (0, "healthy: 2 of 2 endpoints used")

    own_address = f"{address(2)}/32"
    watched.world.run(NODE, ["ip", "address", "del", own_address, "dev", "nodeagent0"])
    watched.world.run(NODE, ["ip", "route", "flush", "table", "local", "root", own_address])
    code, line = first_line(watched, *twin)
    assert (code, f"the service interface does not carry {address(2)}" in line) == (1, True), line
    assert line.startswith("impaired: connections of this node itself to its IPv4 addresses may fail, because ")
    watched.world.run(NODE, ["ip", "address", "add", own_address, "dev", "nodeagent0"])

    late = make_service("late", address(140), ports=HTTP)
    watched.cluster.manifests.put(make_slice(late, [make_endpoint(*HERE)], target_port=TARGET_PORT), late)
    code, line = first_line(watched, "late", *twin[1:])
    assert (code, "is missing" in line, ", and no agent runs here that would put it right; start it" in line) == (
        1,
        True,
        True,
    )

    watched.world.run(NODE, ["nft", "flush", "map", "ip", "nodeagent", "frontends"])
    code, line = first_line(watched, *twin)
    assert (code, "frontends { 10.96.7.2 . tcp . 80 } is missing" in line) == (1, True), line
    watched.world.run(NODE, ["nft", "flush", "ruleset"])
    code, line = first_line(watched, *twin)
    assert code == 1
    assert line.startswith(
        "broken: its IPv4 addresses do not work on this node, because table ip nodeagent is not there"
    )

    watched.start()
    assert watched.eventually("selector-twin", says=("healthy: 2 of 2 endpoints used",)) == 0


def first_line(watched: WatchedNode, *arguments: str) -> tuple[int, str]:
    done = watched.run("explain", *arguments)
    return done.returncode, done.stdout.partition("\n")[0]


def test_a_health_check_port_that_another_has(watched: WatchedNode) -> None:
    spec = ServiceSpec(type="LoadBalancer", external_traffic_policy="Local", health_check_node_port=HEALTH_PORT)
    service = make_service("probed", address(141), ports=HTTP, load_balancer_ips=("198.51.100.50",), spec=spec)
    other = watched.world[NODE].serve(HEALTH_PORT)
    watched.cluster.manifests.put(make_slice(service, [make_endpoint(*HERE)], target_port=TARGET_PORT), service)
    says = (
        "impaired: part of it is not in effect",
        f"cannot listen on port {HEALTH_PORT}",
        "; see who has that port (ss",
    )
    assert watched.eventually("probed", says=says) == 1
    other.stop()
    assert watched.eventually("probed", says=("healthy: 1 of 1 endpoints used",)) == 0


def test_rules_that_another_program_flushed_are_named(watched: WatchedNode) -> None:
    """While the agent stands still; it puts them right when it goes on."""
    assert watched.agent is not None
    watched.agent.signal(signal.SIGSTOP)
    try:
        watched.world.run(NODE, ["nft", "flush", "table", "ip", "nodeagent"])
        code, line = first_line(
            watched, "selector-twin", "--manifests", str(watched.cluster.manifests.path), "--node-name", NODE
        )
        assert code == 1
        assert "because table ip nodeagent is there, without the rules that the agent writes" in line
    finally:
        watched.agent.signal(signal.SIGCONT)
    assert watched.eventually("selector-twin", says=("healthy: 2 of 2 endpoints used",)) == 0


def test_the_agent_says_what_it_did_and_what_is_wrong(watched: WatchedNode) -> None:
    spec = ServiceSpec(external_ips=("not an address",))
    watched.cluster.manifests.put(make_service("odd", address(120), ports=HTTP, spec=spec))
    at = ("--socket", str(watched.socket))

    def odd() -> list[dict[str, str]]:
        listed = json.loads(watched.run("problems", "-o", "json", *at).stdout)
        return [one for one in listed if one["subject"] == "Service default/odd"]

    wait_for(lambda: bool(odd()), lambda: "the problem")
    (problem,) = odd()
    assert problem["reason"] == "InvalidAddress"
    assert problem["since"].startswith("20")
    assert watched.run("problems", *at).returncode == 1
    assert "Service default/odd" in watched.run("problems", "-o", "name", *at).stdout.splitlines()

    def last() -> dict[str, Any]:
        rows = json.loads(watched.run("journal", "--last", "1", "-o", "json", *at).stdout)
        return dict(rows[-1])

    wait_for(lambda: "default/odd" in last()["names"], lambda: f"the pass in {last()}")
    assert last()["elements"] >= 1
    assert last()["milliseconds"] > 0
    assert watched.run("journal", "--last", "1", "-o", "name", *at).stdout.endswith("Z\n")
    watched.cluster.manifests.remove(make_service("odd", address(120)))
    wait_for(lambda: not odd(), lambda: "its end")
    done = watched.run("diff", *at)
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "same")
    assert "interface nodeagent0: right" in done.stdout.splitlines()


def test_the_level_of_the_log_is_changed_while_the_agent_runs(watched: WatchedNode) -> None:
    at = ("--socket", str(watched.socket))
    assert watched.agent is not None
    assert watched.run("log-level", *at).stdout == "info\n"
    assert watched.run("log-level", "debug", *at).stdout == "debug\n"
    watched.cluster.manifests.put(make_service("more", address(121), ports=HTTP))
    watched.agent.wait_for_line("pass done ")
    assert watched.run("log-level", "info", *at).stdout == "info\n"


def test_the_shell_completes_names_of_services(watched: WatchedNode, tmp_path: Path) -> None:
    words = f"nodeagent explain --socket {watched.socket} not-re"
    environment = {"_NODEAGENT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    done = watched._launcher.command(watched.world.namespace(NODE), (), environment={**os.environ, **environment})
    assert done.stdout.split() == ["plain,not-ready", "plain,not-ready-twin"]


def test_who_is_not_there_is_one_line(watched: WatchedNode, tmp_path: Path) -> None:
    done = watched.run("explain", "--socket", str(tmp_path / "none.sock"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"nodeagent: no agent answers at {tmp_path}/none.sock: No such file or directory: ")
    assert watched.run("journal", "--socket", str(tmp_path / "none.sock")).returncode == 1


def test_top_has_the_service_that_gets_connections_first(watched: WatchedNode) -> None:
    """Connections are made all the while between its two looks."""
    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(watched.run, "top", "--once", "--every", "1", "-o", "json")
        while not looking.done():
            watched.world["caller"].ask(address(2), 80, count=5)
    done = looking.result()
    rows = json.loads(done.stdout)
    assert rows[0]["service"] == "default/selector-twin:http"
    assert rows[0]["rate"] > 0
    assert rows[0]["total"] >= 5
    assert {row["rate"] for row in rows[1:]} == {0.0}


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
    blocks = run_by("tests/netns/commands/test_explain_faults.py", "docs/troubleshooting.md")
    return [(block.commands.split()[1:], block.shown[0]) for block in blocks]


@pytest.fixture(scope="module")
def troubled(watched: WatchedNode) -> WatchedNode:
    """The Services that the document speaks of."""
    manifests = watched.cluster.manifests
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
    quiet = make_service("quiet", address(213), ports=HTTP)
    manifests.put(make_slice(quiet, [make_endpoint("10.244.1.11", NODE)], target_port=TARGET_PORT), quiet)
    watched.world.nft("web-1", SHUT)
    return watched


def test_the_document_has_every_fault_that_it_can_have() -> None:
    asked = {arguments[1] for arguments, _ in documented() if arguments[0] == "explain" and len(arguments) > 1}
    assert asked == {*DOCUMENTED, "shop", "other", "quiet"}
    assert len(documented()) >= 14


@pytest.mark.parametrize(("arguments", "begins"), documented(), ids=lambda value: " ".join(value)[:40])
def test_the_commands_of_the_document_say_what_it_says(
    troubled: WatchedNode, arguments: list[str], begins: str
) -> None:
    """They end with 0 exactly when that is good news. The agent is found at its socket here, where more than one may be."""
    own = ("--socket", str(troubled.socket)) if arguments[0] != "plan" else ("--node-name", NODE)
    root = str(ROOT)
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
