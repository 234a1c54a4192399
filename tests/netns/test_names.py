"""Names from a pod, answered on its node, while agents come and go."""

import socket
import time
from collections.abc import Iterator

import dns.message
import dns.rcode
import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.dns import upstream_server
from tests.harness.dns.asking import wrong_answers
from tests.harness.dns.recorded_objects import write_manifests
from tests.harness.objects import make_service, make_slices, service_port
from tests.harness.warm_start import AGENT

pytestmark = pytest.mark.slow

SERVER = "169.254.20.10"
FLAGS = ("--dns", "--dns-listen", SERVER, "--dns-upstreams", "127.0.0.1:9")
CLIENT = "caller"
POD = "web-0"
DEADLINE_SECONDS = 60.0


@pytest.fixture
def named(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.kill_agents()
    cluster.call("cleanup")


def ask(cluster: Cluster, name: str, kind: str = "A") -> list[str]:
    """The rcode, then the data of the answer, as a pod gets them; empty for no reply."""
    query = dns.message.make_query(name, kind).to_wire()

    def exchange() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(10)
            sock.connect((SERVER, 53))
            sock.send(query)
            return sock.recv(4096)

    try:
        reply = dns.message.from_wire(inside(cluster.world.namespace(CLIENT), exchange))
    except OSError:
        return []
    return [dns.rcode.to_text(reply.rcode()), *sorted(one.to_text() for rrset in reply.answer for one in rrset)]


def until(cluster: Cluster, expected: list[str], name: str, kind: str = "A") -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while (said := ask(cluster, name, kind)) != expected:
        assert time.monotonic() < end, f"{name} {kind}: {said}, not {expected}"


def test_a_pod_resolves_services_and_endpoints_and_sees_changes(named: Cluster) -> None:
    four, six = cluster_ips(801)
    service = named.expose("shop", four, six, pods=(POD,))
    agent = named.start_agent(*FLAGS)
    until(named, ["NOERROR", four], "shop.default.svc.cluster.local.")
    assert ask(named, "shop.default.svc.cluster.local.", "AAAA") == ["NOERROR", six]
    assert ask(named, "nothing.default.svc.cluster.local.") == ["NXDOMAIN"]
    named.expose("late", cluster_ips(802)[0], pods=(POD,))
    until(named, ["NOERROR", cluster_ips(802)[0]], "late.default.svc.cluster.local.")
    named.withdraw(service)
    until(named, ["NXDOMAIN"], "shop.default.svc.cluster.local.")
    agent.stop()


def test_a_headless_service_is_its_pods(named: Cluster) -> None:
    headless = make_service("db", "None", ports=(service_port(80, name="http"),), spec=ServiceSpec())
    address = named.world[POD].addresses[0]
    named.manifests.put(headless, *make_slices(headless, [((address,), NODE)], target_port=8080))
    agent = named.start_agent(*FLAGS)
    until(named, ["NOERROR", address], "db.default.svc.cluster.local.")
    host = address.replace(".", "-")
    expected = ["NOERROR", f"0 100 8080 {host}.db.default.svc.cluster.local."]
    assert ask(named, "_http._tcp.db.default.svc.cluster.local.", "SRV") == expected
    agent.stop()


@pytest.mark.parametrize("killed", [False, True], ids=["SIGTERM", "kill -9"])
def test_names_are_answered_while_no_agent_is_there(named: Cluster, killed: bool) -> None:
    four, _ = cluster_ips(803)
    named.expose("shop", four, pods=(POD,))
    agent = named.start_agent(*FLAGS)
    until(named, ["NOERROR", four], "shop.default.svc.cluster.local.")
    if killed:
        agent.kill()
    else:
        agent.stop()
    assert ask(named, "shop.default.svc.cluster.local.") == ["NOERROR", four]
    printed = len(agent.lines)
    agent.restart()
    agent.wait_for_line("adopted the DNS process", after=printed)
    agent.wait_for_line(" ready: ", after=printed)
    assert ask(named, "shop.default.svc.cluster.local.") == ["NOERROR", four]
    agent.stop()


def test_an_agent_without_names_ends_the_process_of_one_with_names(named: Cluster) -> None:
    named.expose("shop", cluster_ips(804)[0], pods=(POD,))
    agent = named.start_agent(*FLAGS)
    until(named, ["NOERROR", cluster_ips(804)[0]], "shop.default.svc.cluster.local.")
    agent.stop()
    without = named.start_agent()
    without.wait_for_line("ended the DNS process")
    until(named, [], "shop.default.svc.cluster.local.")
    without.stop()


def until_refused(cluster: Cluster, *texts: str) -> None:
    """A process that was asked to end is still there for a moment."""
    end = time.monotonic() + DEADLINE_SECONDS
    said = ""
    while not any(text in said for text in texts):
        assert time.monotonic() < end, said
        said = refusal(cluster)


def refusal(cluster: Cluster) -> str:
    result = cluster.world.run(NODE, [*AGENT, "dns", "db", "A"], check=False)
    return result.stderr if result.returncode else ""


def test_a_command_says_what_the_running_agent_holds(named: Cluster) -> None:
    """Its objects explain what its process answers, and are compared with that."""
    four, _ = cluster_ips(806)
    named.expose("shop", four, pods=(POD,))
    headless = make_service("db", "None", ports=(service_port(80, name="http"),), spec=ServiceSpec())
    address = named.world[POD].addresses[0]
    named.manifests.put(headless, *make_slices(headless, [((address,), NODE)], target_port=8080))
    agent = named.start_agent(*FLAGS)
    until(named, ["NOERROR", four], "shop.default.svc.cluster.local.")
    until(named, ["NOERROR", address], "db.default.svc.cluster.local.")
    name, record, objects, why = named.call("dns", "shop", "A").splitlines()
    assert (name, record.split()[-1]) == (f"shop.default.svc.cluster.local. A: NOERROR ({SERVER}:53)", four)
    assert objects.startswith(f"Objects: the agent of node {NODE} at /run/nodeagent/")
    assert why.startswith(f"Service default/shop: its ClusterIPs {four}")
    assert f"  used     {address}" in named.call("dns", "db", "A")
    assert "Service default/shop" in named.call("dns", four)
    assert "Objects: " + str(named.manifests.path) in named.call(
        "dns", "db", "A", "--manifests", str(named.manifests.path)
    )
    elsewhere = named.call("dns", "db", "A", "--server", SERVER, "--zone", "cluster.local")
    assert f"Objects: the agent of node {NODE}" in elsewhere
    assert "differently from" not in elsewhere
    agent.stop()
    named.call("cleanup")

    without = named.start_agent()
    until_refused(named, f"no DNS process is here, and the agent of node {NODE} answers no names")
    without.stop()
    # The usual socket may be an agent's of another test.
    until_refused(named, "no DNS process is here, and no agent answers at", "in another network namespace")


def test_manifests_get_the_recorded_answers(named: Cluster) -> None:
    write_manifests(named.manifests.path)
    with upstream_server.scripted_upstream(named.world.namespace(NODE)):
        agent = named.start_agent("--dns", "--dns-listen", SERVER, "--dns-upstreams", upstream_server.FLAG)
        until(named, ["NOERROR", "10.96.1.1"], "web.shop.svc.cluster.local.")
        wrong = wrong_answers(named.world.namespace(CLIENT), SERVER)
        (named.manifests.path / "recorded.json").unlink()
        agent.stop()
    assert wrong == {}


def test_cleanup_ends_the_process(named: Cluster) -> None:
    named.expose("shop", cluster_ips(805)[0], pods=(POD,))
    agent = named.start_agent(*FLAGS)
    until(named, ["NOERROR", cluster_ips(805)[0]], "shop.default.svc.cluster.local.")
    agent.stop()
    assert "DNS process" in named.call("cleanup")
    assert ask(named, "shop.default.svc.cluster.local.") == []
