"""Traffic policies: who gets which endpoints, whose source address the endpoint sees, and who gets nothing."""

from collections.abc import Iterator, Sequence

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.topology import Pod
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import Service
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS
from tests.harness.objects import make_endpoint, make_slice
from tests.harness.serving_node import ServingNode
from tests.harness.stopwatch import once_within
from tests.netns.services.ways import EXTERNAL, GATEWAYS, NODE_ADDRESSES, build, of, place

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
KINDS = pytest.mark.parametrize("kind", EXTERNAL)

LOCAL_HERE, LOCAL_NONE, CLUSTER, DYING_HERE, DYING, EMPTY = range(1, 7)
"""Numbers of the services."""


FAR_CALLER = Pod("far-caller", ("10.244.2.60", "fd00:244:2::3c"))
"""Of the other node, and no endpoint."""


@pytest.fixture(scope="module")
def exposed(served: ServingNode) -> Iterator[ServingNode]:
    """All the services of this module."""
    served.run_agent(*WITH_POD_CIDRS)
    served.world.add_pod("node-b", FAR_CALLER)
    served.expose(build("local-here", LOCAL_HERE, external="Local", internal="Local"), "web-0", "web-1", "far-0")
    served.expose(build("local-none", LOCAL_NONE, external="Local", internal="Local"), "far-0")
    served.expose(build("cluster", CLUSTER), "web-0", "far-0")
    served.expose(build("empty", EMPTY, external="Local", internal="Local"))
    apply_dying(served, build("dying-here", DYING_HERE, external="Local", internal="Local"), ready=["far-0"])
    apply_dying(served, build("dying", DYING), ready=[])
    yield served
    served.world.remove_pod(FAR_CALLER.name)


def apply_dying(served: ServingNode, service: Service, *, ready: Sequence[str]) -> None:
    """Pod web-0 of the service terminates but still serves, web-1 terminates and does not."""
    for family in Family:
        web, gone = served.world["web-0"].address(family), served.world["web-1"].address(family)
        endpoints = [
            make_endpoint(web, NODE, ready=False, serving=True, terminating=True),
            make_endpoint(gone, NODE, ready=False, serving=False, terminating=True),
            *(make_endpoint(served.world[pod].address(family), "node-b") for pod in ready),
        ]
        served.apply(make_slice(service, endpoints, family, target_port=TARGET_PORT), service)


def served_to(
    exposed: ServingNode, client: str, where: tuple[str, int], protocol: Protocol
) -> tuple[set[str], set[str]]:
    """(who answers, as whom they see the client)."""
    survey = exposed.world[client].ask(*where, protocol, count=40)
    assert not survey.failures, (client, where)
    return set(survey.names), survey.peers


@PROTOCOLS
@FAMILIES
@KINDS
def test_external_policy_local_keeps_the_source_and_stays_on_the_node(
    exposed: ServingNode, kind: str, family: Family, protocol: Protocol
) -> None:
    where = place(kind, LOCAL_HERE, family)
    outside = exposed.world["outside"].address(family)

    assert served_to(exposed, "outside", where, protocol) == ({"web-0", "web-1"}, {outside})


@PROTOCOLS
@FAMILIES
@KINDS
@pytest.mark.parametrize(
    ("service", "pods"),
    [
        pytest.param(LOCAL_HERE, {"web-0", "web-1", "far-0"}, id="endpoints here and there"),
        pytest.param(LOCAL_NONE, {"far-0"}, id="endpoints there only"),
    ],
)
def test_pods_and_the_node_take_the_short_circuit_to_all_endpoints(
    exposed: ServingNode, service: int, pods: set[str], kind: str, family: Family, protocol: Protocol
) -> None:
    where = place(kind, service, family)
    caller = exposed.world["caller"].address(family)
    node = {of(family, GATEWAYS) if pod.startswith("web") else of(family, NODE_ADDRESSES) for pod in pods}

    assert served_to(exposed, "caller", where, protocol) == (pods, {caller})
    assert served_to(exposed, NODE, where, protocol) == (pods, node)


@PROTOCOLS
@FAMILIES
@KINDS
def test_pods_of_other_nodes_hear_nothing_that_they_asked_for_from_endpoints_elsewhere(
    exposed: ServingNode, kind: str, family: Family, protocol: Protocol
) -> None:
    """The endpoint answers the pod directly, from an address that it did not ask. Kubernetes' own tests expect a failure."""
    answer = exposed.world[FAR_CALLER.name].ask(*place(kind, LOCAL_NONE, family), protocol, timeout=0.5).only

    assert answer.failure is not None
    assert exposed.world[FAR_CALLER.name].ask(*place(kind, CLUSTER, family), protocol).only.failure is None


@PROTOCOLS
@FAMILIES
@KINDS
def test_external_policy_cluster_rewrites_every_source(
    exposed: ServingNode, kind: str, family: Family, protocol: Protocol
) -> None:
    node = {of(family, GATEWAYS), of(family, NODE_ADDRESSES)}
    for client in ("outside", "caller", "far-0", NODE):
        assert served_to(exposed, client, place(kind, CLUSTER, family), protocol) == ({"web-0", "far-0"}, node), client


@PROTOCOLS
@FAMILIES
@KINDS
def test_with_endpoints_elsewhere_only_the_outside_hears_nothing(
    exposed: ServingNode, kind: str, family: Family, protocol: Protocol
) -> None:
    answer = exposed.world["outside"].ask(*place(kind, LOCAL_NONE, family), protocol, timeout=0.1).only

    assert answer.failure is Failure.TIMEOUT


@PROTOCOLS
@FAMILIES
def test_internal_policy_local_stays_on_the_node(exposed: ServingNode, family: Family, protocol: Protocol) -> None:
    for client in ("outside", "caller", NODE):
        assert served_to(exposed, client, place("ClusterIP", LOCAL_HERE, family), protocol)[0] == {"web-0", "web-1"}


@PROTOCOLS
@FAMILIES
def test_internal_policy_local_drops_when_all_endpoints_are_elsewhere(
    exposed: ServingNode, family: Family, protocol: Protocol
) -> None:
    for client in ("outside", "caller", NODE):
        answer = exposed.world[client].ask(*place("ClusterIP", LOCAL_NONE, family), protocol, timeout=0.1).only
        # The kernel tells a process of the node that sends a datagram at once that it was dropped.
        traced = Failure.DENIED if client == NODE and protocol is Protocol.UDP else Failure.TIMEOUT
        assert answer.failure is traced, client


@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer", "ExternalIP", "ClusterIP"])
def test_without_any_endpoint_everybody_is_refused_at_once(
    exposed: ServingNode, kind: str, family: Family, protocol: Protocol
) -> None:
    for client in ("outside", "caller", NODE):
        traced = Failure.DENIED if client == NODE and protocol is Protocol.UDP else Failure.REFUSED

        def attempt(client: str = client, traced: Failure = traced) -> float:
            answer = exposed.world[client].ask(*place(kind, EMPTY, family), protocol).only
            assert answer.failure is traced, client
            return answer.seconds

        once_within(0.5, attempt, f"a refusal to {client}")


@PROTOCOLS
@FAMILIES
def test_terminating_pods_serve_while_nobody_else_can(exposed: ServingNode, family: Family, protocol: Protocol) -> None:
    for kind in ("NodePort", "LoadBalancer", "ExternalIP", "ClusterIP"):
        for client in ("outside", "caller", NODE):
            assert served_to(exposed, client, place(kind, DYING, family), protocol)[0] == {"web-0"}, (kind, client)


@PROTOCOLS
@FAMILIES
def test_a_local_list_falls_back_to_terminating_pods_while_the_cluster_wide_one_does_not(
    exposed: ServingNode, family: Family, protocol: Protocol
) -> None:
    for kind in ("NodePort", "LoadBalancer", "ExternalIP"):
        where = place(kind, DYING_HERE, family)
        assert served_to(exposed, "outside", where, protocol)[0] == {"web-0"}, kind
        assert served_to(exposed, "caller", where, protocol)[0] == {"far-0"}, kind
    assert served_to(exposed, "caller", place("ClusterIP", DYING_HERE, family), protocol)[0] == {"web-0"}
