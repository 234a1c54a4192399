"""Names of pods that the API server knows: their own, and what their search path leads to."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import dns.message
import dns.rcode
import pytest

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.api_cluster import ApiCluster, Tenant
from tests.harness.cluster import NODE
from tests.harness.dns import upstream_server
from tests.harness.dns.asking import wrong_answers
from tests.harness.dns.leftover import kill_dns_processes
from tests.harness.dns.recorded_objects import create_all
from tests.harness.warm_start import AGENT

SERVER = "169.254.20.10"
FLAGS = ("--dns", "--dns-upstreams", upstream_server.FLAG, "--dns-pods", "verified", "--dns-autopath")
POD = "web-0"
APP_ENDPOINTS = 5
"""Ready pods of the recorded Service apps/app."""


@pytest.fixture
def named(shaken: ApiCluster, shaken_tenant: Tenant) -> Iterator[Tenant]:
    """A namespace with a Service and a pod, with names that know pods."""
    shaken_tenant.run_pod(POD)
    shaken_tenant.expose("web")
    with upstream_server.scripted_upstream(shaken.world.namespace(NODE)):
        shaken.start_agent(*FLAGS, "--dns-listen", f"{SERVER},{shaken.world[NODE].addresses[0]}")
        yield shaken_tenant
        shaken.stop_agent()
        kill_dns_processes(shaken.world.namespace(NODE))
        shaken.world.run(NODE, [*AGENT, "cleanup"])


def ask(cluster: ApiCluster, name: str, *, kind: str = "A", client: str = POD, server: str = "") -> list[str]:
    """The rcode, then the data of the answer; empty for no reply. server: a node, asked at its address."""
    address = cluster.world[server].addresses[0] if server else SERVER
    query = dns.message.make_query(name, kind).to_wire()

    def exchange() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(10)
            sock.connect((address, 53))
            sock.send(query)
            return sock.recv(4096)

    try:
        reply = dns.message.from_wire(inside(cluster.world.namespace(client), exchange))
    except OSError:
        return []
    return [dns.rcode.to_text(reply.rcode()), *sorted(one.to_text() for rrset in reply.answer for one in rrset)]


def says(
    cluster: ApiCluster, expected: list[str], name: str, *, client: str = POD, server: str = ""
) -> Callable[[], bool]:
    return lambda: ask(cluster, name, client=client, server=server) == expected


def test_a_pod_has_its_name_while_it_runs_and_its_search_path_is_walked(shaken: ApiCluster, named: Tenant) -> None:
    wait = shaken.agent.wait_until
    address = shaken.world[POD].addresses[0]
    own = f"{address.replace('.', '-')}.{named.name}.pod.cluster.local."
    four = named.cluster_ips("web")[0]
    wait(says(shaken, ["NOERROR", four], f"web.{named.name}.svc.cluster.local."), "the Service's name")
    wait(says(shaken, ["NOERROR", address], own), "the pod's name")
    said = shaken.world.run(NODE, [*AGENT, "dns", f"web.{named.name}", "A"]).stdout
    assert said.splitlines()[0] == f"web.{named.name}.svc.cluster.local. A: NOERROR ({SERVER}:53)"
    assert ask(shaken, own.replace(named.name, "default")) == ["NXDOMAIN"]
    first = f"www.example.com.{named.name}.svc.cluster.local."
    assert ask(shaken, first) == ["NOERROR", "192.0.2.53", "www.example.com."]
    assert ask(shaken, first, client="caller") == ["NXDOMAIN"]
    named.end_pod(POD)
    wait(says(shaken, ["NXDOMAIN"], own), "the pod's name to go")
    wait(says(shaken, ["NXDOMAIN"], first), "the search path of a pod that is gone")


def test_only_pods_and_the_node_are_served(shaken: ApiCluster, named: Tenant) -> None:
    name = f"web.{named.name}.svc.cluster.local."
    expected = ["NOERROR", named.cluster_ips("web")[0]]
    wait = shaken.agent.wait_until
    for client in ("caller", NODE):
        wait(says(shaken, expected, name, client=client, server=NODE), f"{client} is served")
    wait(says(shaken, ["REFUSED"], name, client="outside", server=NODE), "a host outside is not")


def test_a_node_that_boots_without_a_server_answers_the_names_that_it_knew(
    shaken: ApiCluster, named: Tenant, tmp_path: Path
) -> None:
    web, missing = f"web.{named.name}.svc.cluster.local.", f"missing.{named.name}.svc.cluster.local."
    namespace = shaken.world.namespace(NODE)
    shaken.start_agent(
        "--dns", "--dns-upstreams", upstream_server.FLAG, "--dns-listen", SERVER, "--snapshot", str(tmp_path / "state")
    )
    shaken.agent.wait_until(says(shaken, ["NOERROR", named.cluster_ips("web")[0]], web), "the Service's name")
    four = named.cluster_ips("web")[0]
    shaken.agent.stop()
    shaken.server.kill()
    kill_dns_processes(namespace)
    shaken.world.run(NODE, [*AGENT, "cleanup"])
    assert ask(shaken, web) == [], "control: nobody answers"

    printed = len(shaken.agent.lines)
    shaken.agent.restart()
    shaken.agent.wait_for_line(" ready: ", after=printed)
    try:
        shaken.agent.wait_until(says(shaken, ["NOERROR", four], web), "the Service's name without a server")
        assert ask(shaken, missing) == ["NXDOMAIN"]
    finally:
        shaken.restart_server()
    named.expose("missing")
    shaken.agent.wait_until(says(shaken, ["NOERROR", named.cluster_ips("missing")[0]], missing), "a name that is new")


def test_objects_of_the_api_server_get_the_recorded_answers(shaken: ApiCluster) -> None:
    """The controllers of the server make the slices of the pods."""
    create_all(shaken.api)
    namespace = shaken.world.namespace(NODE)
    with upstream_server.scripted_upstream(namespace):
        shaken.start_agent("--dns", "--dns-upstreams", upstream_server.FLAG, "--dns-listen", SERVER)
        app = "_http._tcp.app.apps.svc.cluster.local."
        shaken.agent.wait_until(lambda: len(ask(shaken, app, kind="SRV")) == 1 + APP_ENDPOINTS, "slices of the pods")
        wrong = wrong_answers(shaken.world.namespace(POD), SERVER)
        shaken.stop_agent()
        shaken.world.run(NODE, [*AGENT, "cleanup"])
    assert wrong == {}
