"""Services with a fault each, and twins without it."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Family, family_of
from nodeagent.model.objects import LABEL_SERVICE_NAME, EndpointPort, EndpointSlice, Service, ServicePort, ServiceSpec
from tests.harness.cluster import NODE, TARGET_PORT
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port

HTTP = (service_port(80, name="http"),)
HERE, THERE = ("10.244.1.10", NODE), ("10.244.2.10", "node-b")
NOWHERE = "10.245.0.9"
TAKEN_PORT = 30777
"""A node port of a Service that works."""
CLUSTER_IP = "10.96.7.2"
"""Of the first twin."""
LOCAL = ServiceSpec(internal_traffic_policy="Local")


@dataclass(frozen=True)
class Planted:
    """A Service with a fault and its twin. says: what the first line has. client: who fails to connect, and where."""

    says: tuple[str, ...]
    spec: ServiceSpec | None = None
    places: tuple[tuple[str, str], ...] = (HERE, THERE)
    healed: tuple[tuple[str, str], ...] = (HERE, THERE)
    ready: bool = True
    terminating: bool = False
    port_name: str = "http"
    target_port: int = TARGET_PORT
    ports: tuple[ServicePort, ...] = HTTP
    protocol: str = "TCP"
    label: str = ""
    """Of the slice, where it is not the name of the Service."""
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
        ("internalTrafficPolicy is Local and its only endpoint is not on node node-a",),
        spec=LOCAL,
        places=(THERE,),
        healed=(HERE,),
        fails=frozenset({Failure.TIMEOUT}),
    ),
    "family": Planted(
        (
            "its endpoints are IPv6 and the Service has no such address",
            "make ipFamilies of the Service and the addresses",
        ),
        places=(("fd00:244:1::a", NODE),),
    ),
    "terminating": Planted(("all of its 2 endpoints terminate and no longer serve",), ready=False, terminating=True),
    "protocol": Planted(("no slice has a port http/TCP (the slices have http (8080/UDP))",), protocol="UDP"),
    "loopback": Planted(("it has no usable address (loopback)",), places=(("127.0.0.1", NODE),)),
    "cluster-ip": Planted(
        (
            "1 of 1 endpoints cannot be reached",
            f"{CLUSTER_IP} is a ClusterIP, or in their range, and a connection is translated only once",
        ),
        places=((CLUSTER_IP, NODE),),
        target_port=80,
        fails=frozenset({Failure.REFUSED, Failure.TIMEOUT, Failure.UNREACHABLE}),
    ),
    "no-node-name": Planted(
        ("internalTrafficPolicy is Local", "no endpoint says on which node it is"),
        spec=LOCAL,
        places=((HERE[0], ""),),
        healed=(HERE,),
        fails=frozenset({Failure.TIMEOUT}),
    ),
    "node-name": Planted(
        ("this node is node-a, and endpoints are on node-a.example.org", "give the agent that name"),
        spec=LOCAL,
        places=((HERE[0], f"{NODE}.example.org"),),
        healed=(HERE,),
        fails=frozenset({Failure.TIMEOUT}),
    ),
    "label": Planted(
        (
            "there is one for a Service default/labell that does not exist",
            "with the label kubernetes.io/service-name: label",
        ),
        label="labell",
    ),
    "node-port": Planted(
        (
            "1 of 1 endpoints cannot be reached",
            f"192.168.0.2:{TAKEN_PORT} is a node port of this node, and a connection is translated only once",
        ),
        places=(("192.168.0.2", NODE),),
        target_port=TAKEN_PORT,
    ),
    "no-route": Planted(
        ("a route or rule of type unreachable applies to it",),
        places=((NOWHERE, NODE),),
        fails=frozenset({Failure.UNREACHABLE, Failure.TIMEOUT, Failure.OTHER}),
    ),
}


def address(number: int) -> str:
    return f"10.96.7.{number}"


def objects(name: str, ip: str, planted: Planted, *, healthy: bool) -> list[Service | EndpointSlice]:
    service = make_service(name, ip, ports=planted.ports, spec=planted.spec)
    places = planted.healed if healthy else planted.places
    gone = planted.terminating and not healthy
    endpoints = [
        make_endpoint(place, node, ready=healthy or planted.ready, serving=not gone, terminating=gone)
        for place, node in places
    ]
    family = family_of(places[0][0]) if places else Family.IPV4
    made = make_slice(service, endpoints, family, target_port=TARGET_PORT if healthy else planted.target_port)
    if healthy or not made.ports:
        return [service, made]
    ports = tuple(EndpointPort(planted.port_name, port.port, planted.protocol) for port in made.ports)
    labels = {LABEL_SERVICE_NAME: planted.label or name}
    metadata = replace(made.metadata, labels=labels)
    return [service, EndpointSlice(metadata, made.address_type, made.endpoints, ports)]
