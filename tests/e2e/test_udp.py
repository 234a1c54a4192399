"""A UDP client that keeps its source port, and so its tracked flow, loses no second when what is behind the address
changes."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from nodeagent.lab.api import Document
from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.member import Holding
from nodeagent.lab.net.topology import Pod
from nodeagent.model.addresses import Family, Protocol
from tests.harness.api_cluster import SOON, ApiCluster, Tenant
from tests.harness.cluster import NODE, TARGET_PORT
from tests.harness.lost_packets import PATIENT
from tests.harness.stopwatch import Stopwatch, allowed

PORT = 53
VIPS = ("198.51.100.53", "2001:db8:100::53")
SHORT_LIVED = Pod("brief", ("10.244.1.90", "fd00:244:1::5a"))
PATIENCE_SECONDS = 0.1
"""For one answer: nothing is lost by itself here."""
BETWEEN_SECONDS = 0.005
"""From one question to the next."""
ROUTES = [
    pytest.param("caller", "cluster", id="pod to the ClusterIP"),
    pytest.param(NODE, "cluster", id="node to the ClusterIP"),
    pytest.param("outside", "node port", id="outside to the node port"),
    pytest.param("outside", "balancer", id="outside to the balancer's address"),
]
FAMILIES = pytest.mark.parametrize("family", [0, 1], ids=[family.value for family in Family])


class Client:
    """Asks from one source port until it is stopped."""

    def __init__(self, holding: Holding, involved: Sequence[int]) -> None:
        self._holding = holding
        self._involved = involved

    def watch(self) -> Stopwatch:
        """Stands still while others have the processor that somebody involved wants."""
        return Stopwatch(self._involved)

    def ask(self) -> str:
        """Who answered, or the kind of failure. An answer that had no processor to come in time is asked for again."""
        while True:
            time.sleep(BETWEEN_SECONDS)
            watch = self.watch()
            answer = self._holding.ask().only
            if answer.failure is not Failure.TIMEOUT or watch.seconds > 0.9 * PATIENCE_SECONDS:
                return answer.failure.value if answer.failure else answer.name

    def until(self, name: str) -> None:
        """Ask until it is `name` who answers, soon, and ten times more."""
        watch = self.watch()
        while (found := self.ask()) != name:
            assert watch.seconds < allowed(SOON), f"{found} instead of {name}"
        answers: list[str] = []
        while len(answers) < 10:
            found = self.ask()
            if found != Failure.TIMEOUT.value or watch.seconds > allowed(SOON):
                answers.append(found)
        assert answers == [name] * 10


@pytest.fixture
def dns(calm: ApiCluster, tenant: Tenant) -> Tenant:
    """A namespace with Service `dns` on UDP, at fixed ClusterIPs, a node port and a balancer's addresses."""
    create(calm, tenant)
    return tenant


def create(cluster: ApiCluster, tenant: Tenant, like: Document | None = None) -> None:
    """Create the Service; `like` gives it the ClusterIPs and the node port of one that was."""
    port: Document = {"name": "dns", "protocol": "UDP", "port": PORT, "targetPort": TARGET_PORT}
    fixed: Document = {}
    if like is not None:
        port["nodePort"] = node_port(like)
        fixed = {"clusterIP": like["spec"]["clusterIP"], "clusterIPs": like["spec"]["clusterIPs"]}
    tenant.expose("dns", type="LoadBalancer", ipFamilyPolicy="RequireDualStack", ports=[port], **fixed)
    ingress = [{"ip": address} for address in VIPS]
    cluster.api.merge(tenant.path("services", "dns/status"), {"status": {"loadBalancer": {"ingress": ingress}}})


def node_port(service: Document) -> int:
    """Of its only port."""
    return int(service["spec"]["ports"][0]["nodePort"])


@contextmanager
def client(cluster: ApiCluster, tenant: Tenant, member: str, kind: str, family: int, first: str) -> Iterator[Client]:
    """A client of the Service that has been answered by `first`."""
    service = cluster.api.get(tenant.path("services", "dns"))
    places = {
        "cluster": (service["spec"]["clusterIPs"], PORT),
        "node port": (cluster.world[NODE].addresses, node_port(service)),
        "balancer": (VIPS, PORT),
    }
    addresses, port = places[kind]

    def answered() -> bool:
        found = cluster.world[member].ask(addresses[family], port, Protocol.UDP, timeout=PATIENCE_SECONDS)
        return found.names == {first: 1}

    cluster.agent.wait_until(answered, f"{first} at {addresses[family]}")
    with cluster.world[member].hold(addresses[family], port, Protocol.UDP, timeout=PATIENCE_SECONDS) as holding:
        yield Client(holding, cluster.processes)


@FAMILIES
@pytest.mark.parametrize(("member", "kind"), ROUTES)
def test_its_pod_is_replaced(calm: ApiCluster, dns: Tenant, member: str, kind: str, family: int) -> None:
    """First in order: the old pod is deleted while it still answers. Then at once: its power is cut."""
    dns.run_pod("web-0")
    with client(calm, dns, member, kind, family, "web-0") as asking:
        dns.run_pod("web-1")
        dns.end_pod("web-0")
        asking.until("web-1")

        calm.add_pod("node-a", SHORT_LIVED)
        dns.run_pod(SHORT_LIVED.name)
        dns.end_pod("web-1")
        asking.until(SHORT_LIVED.name)

        calm.world.remove_pod(SHORT_LIVED.name)
        dns.run_pod("far-0")
        dns.end_pod(SHORT_LIVED.name)
        asking.until("far-0")


@FAMILIES
@pytest.mark.parametrize(("member", "kind"), ROUTES)
def test_a_udp_client_survives_loss_deletion_and_return_of_its_service(
    calm: ApiCluster, dns: Tenant, member: str, kind: str, family: int
) -> None:
    """The client keeps asking: packets that it sends meanwhile must not leave a flow that leads nowhere."""
    dns.run_pod("web-0")
    with client(calm, dns, member, kind, family, "web-0") as asking:
        dns.end_pod("web-0")
        watch = asking.watch()
        while asking.ask() != Failure.REFUSED.value:
            assert watch.seconds < allowed(SOON)
        dns.run_pod("web-1")
        asking.until("web-1")

        service = calm.api.get(dns.path("services", "dns"))
        calm.api.delete(dns.path("services", "dns"))
        watch = asking.watch()
        while asking.ask() == "web-1":
            assert watch.seconds < allowed(SOON)
        create(calm, dns, like=service)
        asking.until("web-1")


def test_open_flows_to_other_pods_are_left_alone(calm: ApiCluster, dns: Tenant) -> None:
    """Only the flows of the pod that went move; the others keep their pod."""
    pods = ("web-0", "web-1", "web-2")
    for pod in pods:
        dns.run_pod(pod)
    address = dns.cluster_ips("dns")[0]
    caller = calm.world["caller"]

    def everybody() -> bool:
        found = caller.ask(address, PORT, Protocol.UDP, count=20, timeout=PATIENCE_SECONDS)
        return set(found.names) == set(pods) and not found.failures

    calm.agent.wait_until(everybody, "all pods")
    with caller.hold(address, PORT, Protocol.UDP, count=30, timeout=PATIENT) as held:
        before = [answer.name for answer in held.opened]
        assert set(before) == set(pods)
        dns.end_pod("web-0")
        watch = Stopwatch(calm.processes)
        while "web-0" in held.ask().names:
            assert watch.seconds < allowed(SOON)
        after = [answer.name for answer in held.ask()]
    assert [name for name, was in zip(after, before, strict=True) if was != "web-0"] == [
        was for was in before if was != "web-0"
    ]
    assert set(after) == {"web-1", "web-2"}
