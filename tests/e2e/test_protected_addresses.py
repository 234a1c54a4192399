"""Services that claim the API server's address, or the node's, take neither from the agent; docs/semantics.md 74-76."""

import zlib
from collections.abc import Iterator

import pytest

from tests.harness.api_cluster import (
    CONTROL,
    CONTROL_ADDRESSES,
    PODS,
    PORT,
    ApiCluster,
    Tenant,
    all_answering,
    answered_by,
    controlled_topology,
)
from tests.harness.cluster import NODE, UNTHROTTLED
from tests.harness.warm_start import WarmLauncher
from tests.harness.worlds.world import World

NEIGHBOUR = PORT + 1
"""A port of the API server's host that is not the API server's: it shows that capturing works there."""
REFUSING = "0:fffe"
"""The class of a frontend without endpoints."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((CONTROL_ADDRESSES[0], "owned"), id="IPv4, owned tables"),
        pytest.param((CONTROL_ADDRESSES[1], "plain"), id="IPv6, plain tables"),
    ],
)
def scene(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The address by which the API server is reached, and the kind of tables."""
    address, ownership = request.param
    return address, ownership


@pytest.fixture
def address(scene: tuple[str, str]) -> str:
    return scene[0]


@pytest.fixture(scope="module")
def cluster(
    scene: tuple[str, str],
    network_namespaces: None,
    warm_launcher: WarmLauncher,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ApiCluster]:
    address, ownership = scene
    with World(controlled_topology(), fork_server=warm_launcher.actors, launcher=warm_launcher) as world:
        started = ApiCluster(world, tmp_path_factory.mktemp("protected"))
        world.write_sysctls(NODE, UNTHROTTLED)
        started.start_server(listen=f"[{address}]" if ":" in address else address)
        started.declare_nodes()
        started.serve(*PODS)
        for port in (NEIGHBOUR, 22, 80):
            world[CONTROL].serve(port)
            world[NODE].serve(port)
        started.start_agent("--table-ownership", ownership)
        yield started


@pytest.fixture
def tenant(cluster: ApiCluster, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    made = cluster.tenant(f"test-{zlib.crc32(request.node.nodeid.encode()):08x}")
    made.run_pod("web-0")
    yield made
    made.remove()


def ports(*numbers: int) -> list[dict[str, object]]:
    return [{"name": f"p{number}", "port": number, "targetPort": 8080} for number in numbers]


def follows(cluster: ApiCluster, tenant: Tenant) -> None:
    """A Service that is created now reaches the packets."""
    tenant.expose("news")
    cluster.agent.wait_until(answered_by(cluster, tenant.cluster_ips("news"), "web-0"), "the new Service")


def notes(cluster: ApiCluster, tenant: Tenant) -> list[str]:
    """What the events about protected addresses say. The agent publishes them in its own time."""
    events = cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{tenant.name}/events")["items"]
    return [event["note"] for event in events if event["reason"] == "ProtectedAddress"]


def test_74_the_agent_reconnects_although_a_service_claims_the_api_servers_address(
    cluster: ApiCluster, tenant: Tenant
) -> None:
    both = CONTROL_ADDRESSES
    assert all_answering(cluster, both, NEIGHBOUR, client=NODE) == {CONTROL}
    tenant.expose("greedy", externalIPs=list(both), ports=ports(PORT, NEIGHBOUR))
    cluster.changed().shows(
        answered_by(cluster, both, "web-0", port=NEIGHBOUR, client=NODE), "the capture of the neighbour"
    )

    cluster.server.kill()
    cluster.restart_server()
    follows(cluster, tenant)
    cluster.agent.wait_until(
        lambda: any(
            "is where this node reaches the API server: not captured" in note for note in notes(cluster, tenant)
        ),
        "the event",
    )

    cluster.api.delete(tenant.path("services", "greedy"))
    cluster.changed().shows(answered_by(cluster, both, CONTROL, port=NEIGHBOUR, client=NODE), "the end of the capture")


def test_74_a_capture_that_the_tables_still_hold_is_taken_away_before_the_agent_connects(
    cluster: ApiCluster, tenant: Tenant, address: str
) -> None:
    family = "ip6" if ":" in address else "ip"
    cluster.stop_agent()
    for port in (PORT, NEIGHBOUR):
        cluster.world.nft(NODE, f"add element {family} nodeagent frontends {{ {address} . tcp . {port} : {REFUSING} }}")
    assert all_answering(cluster, (address,), NEIGHBOUR, client=NODE) == {"refused"}
    assert all_answering(cluster, (address,), PORT, client=NODE) == {"refused"}

    cluster.restart_agent()
    cluster.agent.wait_for_line("the way to the API server: its element was removed")
    follows(cluster, tenant)


def test_75_the_nodes_own_ports_are_not_captured(cluster: ApiCluster, tenant: Tenant) -> None:
    own = cluster.world[NODE].addresses
    tenant.expose("greedy", externalIPs=list(own), ports=ports(22, 80))
    cluster.changed().shows(answered_by(cluster, own, "web-0", port=80, client="outside"), "the capture of port 80")
    assert all_answering(cluster, own, 22, client="outside") == {NODE}
