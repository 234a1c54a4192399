"""What the lab writes is what the agent reads."""

from pathlib import Path

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import ApiObject, EndpointSlice, ServiceSpec, service_of
from nodeagent.proxy.source.manifests.manifests import parse_manifest
from tests.harness.objects import (
    ManifestDirectory,
    make_endpoint,
    make_node,
    make_service,
    make_slice,
    make_slices,
    manifest,
    service_port,
)

DUAL = make_service("web", "10.96.0.10", "fd00:10:96::10")
PODS = [(("10.244.1.10", "fd00:244:1::a"), "node-a"), (("10.244.2.10",), "node-b")]


def addresses(piece: EndpointSlice) -> list[str]:
    return [address for endpoint in piece.endpoints or () for address in endpoint.addresses or ()]


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(make_service("web", "10.96.0.10"), id="service"),
        pytest.param(
            make_service(
                "web",
                "10.96.0.10",
                "fd00:10:96::10",
                ports=[service_port(53, Protocol.UDP, name="dns", node_port=30053), service_port(9, name="sctp")],
                load_balancer_ips=["198.51.100.7"],
                spec=ServiceSpec(external_traffic_policy="Local", load_balancer_source_ranges=("10.0.0.0/8",)),
            ),
            id="service with everything",
        ),
        pytest.param(make_slice(DUAL, [make_endpoint("10.0.0.1", "node-a", terminating=True)]), id="slice"),
        pytest.param(make_slice(DUAL, [], Family.IPV6), id="slice without endpoints"),
        pytest.param(make_node("node-a", ["192.168.0.2", "2001:db8::2"], zone="east"), id="node"),
    ],
)
def test_a_manifest_reads_as_the_object_it_was_made_of(obj: ApiObject) -> None:
    read = parse_manifest("made.yaml", manifest(obj).encode())

    assert not read.faults
    assert [manifest(o.obj) for o in read.objects] == [manifest(obj)]


@pytest.mark.parametrize(
    ("kind", "node_port", "load_balancers"),
    [("ClusterIP", None, ()), ("NodePort", 30080, ()), ("LoadBalancer", 30080, ("198.51.100.1",))],
)
def test_the_type_of_a_service_follows_from_what_it_has(
    kind: str, node_port: int | None, load_balancers: tuple[str, ...]
) -> None:
    ports = [service_port(80, node_port=node_port)]
    assert make_service("web", "10.96.0.1", ports=ports, load_balancer_ips=load_balancers).spec.type == kind


def test_slices_are_one_per_family_even_when_empty() -> None:
    four, six = make_slices(DUAL, PODS, target_port=8080)

    assert (four.address_type, addresses(four)) == ("IPv4", ["10.244.1.10", "10.244.2.10"])
    assert (six.address_type, addresses(six)) == ("IPv6", ["fd00:244:1::a"])
    assert service_of(four) == ("default", "web")
    assert [port.port for port in four.ports or ()] == [8080]
    assert [addresses(piece) for piece in make_slices(DUAL, [])] == [[], []]


def test_a_directory_holds_one_file_per_object_and_nothing_half_written(tmp_path: Path) -> None:
    directory = ManifestDirectory(tmp_path)
    slices = make_slices(DUAL, PODS)
    directory.put(DUAL, *slices)
    directory.put(DUAL)

    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "endpointslice-default-web-ipv4.yaml",
        "endpointslice-default-web-ipv6.yaml",
        "service-default-web.yaml",
    ]
    directory.remove(DUAL, *slices)
    directory.remove(DUAL)
    assert not list(tmp_path.iterdir())
