"""Node ports answer at the node's addresses that were asked for, follow new ones, and stay off everybody else's."""

from collections.abc import Sequence

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.survey import Survey
from nodeagent.lab.net.topology import UNDERLAY
from nodeagent.model.addresses import Family, Protocol, family_of
from tests.harness.cluster import NODE, WITH_POD_CIDRS, cluster_ips
from tests.harness.links import Links
from tests.harness.objects import make_service, service_port
from tests.harness.serving_node import ServingNode

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)

NODE_PORT = 30080
PORTS = (
    service_port(80, name="http", node_port=NODE_PORT),
    service_port(80, Protocol.UDP, name="dns", node_port=NODE_PORT),
)
CLUSTER_IPS = cluster_ips(1)
VIPS = ("198.51.100.1", "2001:db8:100::1")
PRIMARY = ("192.168.0.2", "2001:db8::2")
SECOND = ("192.168.7.2", "2001:db8:7::2")
LATE = ("192.168.7.99", "2001:db8:7::99")
LOOPBACK = ("127.0.0.1", "::1")

AT_PRIMARY = WITH_POD_CIDRS
AT_SECOND = (*WITH_POD_CIDRS, "--nodeport-addresses", "192.168.7.0/24,2001:db8:7::/64")
AT_SECOND_IPV4 = (*WITH_POD_CIDRS, "--nodeport-addresses", "192.168.7.0/24")
AT_ALL = (*WITH_POD_CIDRS, "--nodeport-addresses", "all")
AT_LOOPBACK_TOO = (*WITH_POD_CIDRS, "--nodeport-addresses", "127.0.0.0/8,192.168.0.0/16,::/0")


@pytest.fixture(scope="module")
def exposed(served: ServingNode) -> ServingNode:
    """A service with a node port; the node has a second address."""
    for address in SECOND:
        add_address(served, address)
    served.run_agent(*AT_PRIMARY)
    served.expose(make_service("web", *CLUSTER_IPS, ports=PORTS, load_balancer_ips=VIPS), "web-0", "far-0")
    return served


def add_address(served: ServingNode, address: str) -> None:
    """Give the node another address that the others can reach."""
    via = PRIMARY[family_of(address) is Family.IPV6]
    Links(served.world, UNDERLAY).add_route(address, via, NODE)
    Links(served.world, NODE).add_addresses("eth0", address)


def of(family: Family, addresses: Sequence[str]) -> str:
    return next(address for address in addresses if family_of(address) is family)


def ask(served: ServingNode, client: str, address: str, protocol: Protocol) -> Survey:
    return served.world[client].ask(address, NODE_PORT, protocol, count=4)


@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize(
    ("flags", "at_primary", "at_second"),
    [
        pytest.param(AT_PRIMARY, "both", "", id="primary"),
        pytest.param(AT_SECOND, "", "both", id="CIDRs of both families"),
        pytest.param(AT_SECOND_IPV4, "IPv6", "both", id="a CIDR of one family leaves the other open"),
        pytest.param(AT_ALL, "both", "both", id="all"),
        pytest.param(AT_LOOPBACK_TOO, "both", "both", id="a list with loopback"),
    ],
)
def test_node_ports_answer_where_asked_for_and_daemons_of_the_host_elsewhere(
    exposed: ServingNode, flags: tuple[str, ...], at_primary: str, at_second: str, family: Family, protocol: Protocol
) -> None:
    exposed.run_agent(*flags)
    # What was a flow under other flags stays one: chance may give a client the port that another had in the last minutes.
    exposed.world.run(NODE, ["conntrack", "-F"])
    primary, second = of(family, PRIMARY), of(family, SECOND)
    with exposed.world[NODE].serve(NODE_PORT, protocol, addresses=(primary, second)):
        for client in ("outside", "caller", "far-0", NODE):
            for address, answering in ((primary, at_primary), (second, at_second)):
                survey = ask(exposed, client, address, protocol)

                assert not survey.failures, (client, address)
                pods = answering in ("both", family.value)
                assert set(survey.names) <= ({"web-0", "far-0"} if pods else {NODE}), (client, address)


@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize("flags", [pytest.param(AT_ALL, id="all"), pytest.param(AT_LOOPBACK_TOO, id="loopback listed")])
def test_loopback_stays_with_the_daemons_of_the_host(
    exposed: ServingNode, flags: tuple[str, ...], family: Family, protocol: Protocol
) -> None:
    exposed.run_agent(*flags)
    address = of(family, LOOPBACK)
    with exposed.world[NODE].serve(NODE_PORT, protocol, addresses=(address,)):
        assert ask(exposed, NODE, address, protocol).names == {NODE: 4}


@PROTOCOLS
@FAMILIES
def test_service_addresses_have_no_node_ports(exposed: ServingNode, family: Family, protocol: Protocol) -> None:
    exposed.run_agent(*AT_ALL)
    for client in ("outside", "caller", NODE):
        member = exposed.world[client]
        at_cluster_ip = member.ask(of(family, CLUSTER_IPS), NODE_PORT, protocol).only
        at_vip = member.ask(of(family, VIPS), NODE_PORT, protocol, timeout=0.1).only

        assert at_cluster_ip.failure in (Failure.REFUSED, Failure.DENIED), client
        assert at_vip.failure in (Failure.UNREACHABLE, Failure.TIMEOUT), client


@pytest.mark.parametrize("flags", [pytest.param(AT_ALL, id="all"), pytest.param(AT_SECOND, id="inside a CIDR")])
def test_an_address_added_while_the_agent_runs_answers_at_once(exposed: ServingNode, flags: tuple[str, ...]) -> None:
    exposed.run_agent(*flags)
    for address in LATE:
        add_address(exposed, address)
    try:
        for address in LATE:
            for protocol in (Protocol.TCP, Protocol.UDP):
                assert sum(ask(exposed, "outside", address, protocol).names.values()) == 4, (address, protocol)
    finally:
        for address in LATE:
            Links(exposed.world, UNDERLAY).remove_route(address)
            Links(exposed.world, NODE).remove_addresses("eth0", address)
