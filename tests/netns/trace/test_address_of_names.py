"""The address at which names are answered, with the chains that leave its packets out of connection tracking."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.model.addresses import Protocol, endpoint_text, family_of
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import service_port
from tests.netns.trace.test_predictions import asked, check

pytestmark = pytest.mark.kernel

NAMES = cluster_ips(53)
PORTS = (service_port(53, Protocol.UDP, name="dns"), service_port(53, name="dns-tcp"))
POD = "web-0"


@pytest.fixture
def named(cluster: Cluster) -> Iterator[Cluster]:
    """A DNS Service with one pod, programmed."""
    servers = [cluster.world[POD].serve(53, protocol) for protocol in (Protocol.UDP, Protocol.TCP)]
    cluster.expose("kube-dns", *NAMES, pods=(POD,), ports=PORTS, target_port=53)
    cluster.program_once(*WITH_POD_CIDRS, "--conntrack-max-per-core", "0")
    yield cluster
    cluster.kill_agents()
    cluster.call("cleanup")
    for server in servers:
        server.stop()


def dig(cluster: Cluster, client: str, address: str, *options: str) -> str:
    argv = ["dig", f"@{address}", "+tries=5", "+time=5", "kube-dns.default.svc.cluster.local", "A", *options]
    return cluster.world.run(client, argv, check=False).stdout


def traced(cluster: Cluster, client: str, address: str, protocol: Protocol) -> dict[str, Any]:
    source = cluster.world[client].address(family_of(address))
    place = f"{endpoint_text(address, 53)}/{protocol.name}"
    reported: dict[str, Any] = json.loads(cluster.call("trace", source, place, "-o", "json"))
    return reported


@pytest.mark.parametrize(("client", "address"), [("caller", NAMES[0]), (NODE, NAMES[1])], ids=["pod", "node, IPv6"])
def test_the_address_of_names_leads_to_the_pod_until_the_node_answers(
    named: Cluster, client: str, address: str
) -> None:
    """The flows of UDP that are tracked to the pod from before hold nobody up: queries are not tracked any more."""
    world = named.world
    for protocol in (Protocol.UDP, Protocol.TCP):
        reported, answers = asked(world, client, address, 53, protocol)
        (outcome,) = reported["outcomes"]
        assert outcome["destination"] == endpoint_text(world[POD].address(family_of(address)), 53)
        check(world, reported, answers, world[client].address(family_of(address)))

    agent = named.start_agent(
        *WITH_POD_CIDRS, "--dns", "--dns-listen", ",".join(NAMES), "--dns-upstreams", "127.0.0.1:9"
    )
    agent.wait_until(lambda: "status: NOERROR" in dig(named, client, address), "names")
    for protocol, options in ((Protocol.UDP, ()), (Protocol.TCP, ("+tcp",))):
        reported = traced(named, client, address, protocol)
        (outcome,) = reported["outcomes"]
        assert (outcome["end"], outcome["destination"]) == ("arrives", endpoint_text(address, 53))
        assert outcome["route"] == "delivered here"
        assert reported["verdict"].endswith("names, answered by this node"), reported["verdict"]
        untracked = any(one["applied"] and "notrack" in one["text"] for one in outcome["decisions"])
        assert untracked is (protocol is Protocol.UDP)
        assert NAMES[0] in dig(named, client, address, "+short", *options)
    agent.stop()
