"""Law: whatever an object holds, in whichever field, it comes through the whole path without an exception.

What is refused on the way is a Problem. Nothing that is made of an object (log line, event, page, status) holds a
character that a terminal would obey.
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.model.addresses import Family
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import comment_text, empty_image
from nodeagent.proxy.dataplane.interface_plan import Present, plan
from nodeagent.proxy.dataplane.program.schema import DATA_SETS
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.engine.udp_changes import UdpChanges
from nodeagent.proxy.observe.event_documents import Series, creation, event_name, node_regarding, problem_event
from nodeagent.proxy.observe.health_ports import HealthPorts
from nodeagent.proxy.observe.service_health import service_response
from nodeagent.proxy.source.decode import ObjectDecoder
from nodeagent.proxy.source.manifests.manifest_world import ManifestFile, merge
from nodeagent.proxy.source.manifests.manifests import parse_manifest
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.translate.node_state import DetectLocal, TranslationOptions, node_context, node_state
from nodeagent.proxy.translate.translator import Translator
from nodeagent.runtime.logs.setup import JsonFormatter, TextFormatter
from tests.harness.effort import EFFORT, examples

Document = dict[str, Any]
Where = tuple[str | int, ...]

TEXTS = (
    "", " ", "x", "None", "tcp", "SCTP", "UDP", "Cluster", "local", "IPv6", "ExternalName", "NodePort", "Proxy",
    "10.96.0.1", "010.096.0.1", "10.96.0.256", "fd00::1", "::ffff:10.0.0.1", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::",
    "255.255.255.255", "240.0.0.1", "224.0.0.1", "ff02::1", "127.0.0.1", "::1", "10.0.0.0/8", "0.0.0.0/0", "::/0",
    "10.0.0.0/99", "10.0.0.0/-1", "1.2.3.4/" + "9" * 5000, "9" * 5000, "a" * 300, "ä" * 200, "\x00", "a\x00b", "\x1b[31mred\x1b[0m",
    "a\nb", "a\r\nb", "\u202eevil", "\u2028", "\u2066x", "\x85", "../../api/v1/secrets", "a/b/c", "?x=y#z", "%2e%2e", "٣", "²",
    "\ufeff", "2026-01-01",
)  # fmt: skip
NUMBERS = (0, -1, 65535, 65536, 70000, 2**31, 2**32, -(2**63), 2**63 - 1, 2**63, 2**64, 10**30, 1.0, 1.5, 1e300)
OTHERS: tuple[Any, ...] = (None, True, [], {}, [[]], {"a": {"b": []}}, [None], [""], ["x"] * 2000)
HOSTILE = (*TEXTS, *NUMBERS, *OTHERS)

SERVICE: Document = {
    "metadata": {
        "name": "web",
        "namespace": "default",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "1",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
    },
    "spec": {
        "type": "LoadBalancer",
        "clusterIP": "10.96.0.1",
        "clusterIPs": ["10.96.0.1", "fd00:96::1"],
        "ipFamilies": ["IPv4", "IPv6"],
        "ports": [
            {"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP", "targetPort": 8080, "appProtocol": "h2"},
            {"name": "dns", "port": 53, "nodePort": 30053, "protocol": "UDP", "targetPort": "dns"},
        ],
        "externalIPs": ["192.0.2.1"],
        "internalTrafficPolicy": "Local",
        "externalTrafficPolicy": "Local",
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "loadBalancerSourceRanges": ["203.0.113.0/24"],
        "healthCheckNodePort": 31000,
    },
    "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1", "hostname": "h", "ipMode": "VIP"}]}},
}
SLICE: Document = {
    "metadata": {"name": "web-1", "namespace": "default", "uid": "u", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "dns", "port": 5353, "protocol": "UDP"}],
    "endpoints": [
        {
            "addresses": ["10.244.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": "here",
            "zone": "z",
            "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "here"}]},
        },
        {"addresses": ["10.244.0.2"], "nodeName": "there"},
    ],
}
NODE: Document = {
    "metadata": {"name": "here", "uid": "u", "labels": {"topology.kubernetes.io/zone": "z"}, "deletionTimestamp": None},
    "spec": {
        "podCIDR": "10.244.0.0/24",
        "podCIDRs": ["10.244.0.0/24"],
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    },
    "status": {
        "addresses": [
            {"type": "InternalIP", "address": "192.168.0.2"},
            {"type": "ExternalIP", "address": "2001:db8::2"},
        ]
    },
}
CIDR: Document = {"metadata": {"name": "range", "uid": "u"}, "spec": {"cidrs": ["10.96.0.0/16"]}}
WORLD: Mapping[type[Any], Document] = {Node: NODE, ServiceCIDR: CIDR, EndpointSlice: SLICE, Service: SERVICE}


def places(value: Any, where: Where = ()) -> Iterator[Where]:
    """Every field and item below `value`, however deep."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in below:
        yield (*where, step)
        yield from places(inner, (*where, step))


PLACES = [(kind, where) for kind, document in WORLD.items() for where in places(document)]
STEP = max(1, round(3 / EFFORT))
HOSTILE_PLACES = [
    pytest.param(kind, where, id=f"{kind.__name__}.{'.'.join(map(str, where))}") for kind, where in PLACES
]


def hostile_values(kind: type[Any], where: Where) -> tuple[Any, ...]:
    """What a place is given: every third of them, beginning with another one at the next place; with `EFFORT=3` all."""
    return HOSTILE[PLACES.index((kind, where)) % STEP :: STEP]


def altered(value: Any, where: Where, hostile: Any) -> Any:
    """A copy with something else at that place, if the place is still there."""
    if not where:
        return hostile
    step, *rest = where
    if isinstance(value, dict) and step in value:
        return {**value, step: altered(value[step], tuple(rest), hostile)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [*value[:step], altered(value[step], tuple(rest), hostile), *value[step + 1 :]]
    return value


class Path:
    """Everything an object goes through, except the kernel and the network."""

    settings = TranslationOptions(node_name="here", detect_local=DetectLocal.NODE_CIDR)

    def __init__(self) -> None:
        self.store = ClusterStore(ChangeQueue(lambda: 0.0))
        self.problems: set[Problem] = set()
        self.lines: list[str] = []

    def read(self, kind: type[Any], *documents: Document) -> None:
        """As a list of the API server."""
        body = msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": documents})
        decoder = ObjectDecoder(kind)
        listing = self.store.listing(kind)
        for batch in decoder.list_page(body)[1]:
            listing.add(batch.objects)
            self.problems.update(undecodable.problem(kind.__name__) for undecodable in batch.undecodable)
        listing.commit()

    def go(self) -> None:
        """One pass, and all its observers."""
        context = node_context(self.store.node, self.settings)
        node, problems = node_state(self.store.node, self.store.service_cidrs, self.settings, context)
        self.problems.update(problems)
        translator = Translator()
        changed = translator.update(self.store, None, context)
        UdpChanges().note(changed)
        ports = HealthPorts()
        ports.update(changed)
        assert all(0 < port < 65536 for port in ports.ports), "somebody would have to listen there"
        for key, state in changed.items():
            if state is not None:
                self.problems.update(state.problems)
                if state.health_check is not None:
                    page = service_response(key, 1, healthy=True)
                    self.lines.append(page.body.decode())
        self.frontends = sum(len(state.frontends) for state in changed.values() if state is not None)
        vips = frozenset(vip for state in changed.values() if state is not None for vip in state.cluster_ips)
        for state in changed.values():
            self.lines += [comment_text(front.service_port).decode() for front in (state.frontends if state else ())]
        plan(vips, Present())
        for family in Family:
            desired = DesiredImage(family)
            desired.update(changed, empty_image(DATA_SETS))
            desired.set_node(node)
        self._tell()

    def _tell(self) -> None:
        node = node_regarding("here")
        for problem in self.problems:
            event = problem_event(problem, node, lambda kind, key: f"uid of {kind} {key}")
            if event is not None:
                name = event_name(event, "1")
                moment = datetime(2026, 1, 1, tzinfo=UTC)
                document = creation(event, name=name, instance="i", first=moment, series=Series(1, moment))
                self.lines += [str(document["note"]), event.regarding.namespace, event.regarding.name, name]
                assert event.path.count("/") == 6, "no name leads to another place of the API"
                assert not {"?", "#"} & set(event.path)
            self.lines += list(log_lines(problem))
        for line in self.lines:
            assert line.isprintable(), line


def log_lines(problem: Problem) -> Iterator[str]:
    record = logging.LogRecord("nodeagent.x", logging.WARNING, "", 0, "problem: %s", (problem,), None)
    for formatter in (TextFormatter(journald=False), TextFormatter(journald=True), JsonFormatter()):
        yield formatter.format(record)


def walk(world: Mapping[type[Any], Document]) -> Path:
    path = Path()
    for kind, document in world.items():
        path.read(kind, document)
    path.go()
    return path


def test_the_world_as_it_is_goes_all_the_way() -> None:
    path = walk(WORLD)
    assert not path.problems
    assert path.frontends == 12, "two ports at two ClusterIPs, two other addresses and the node ports of two families"


@pytest.mark.parametrize(("kind", "where"), HOSTILE_PLACES)
def test_no_value_in_any_field_of_an_object_ends_the_way(kind: type[Any], where: Where) -> None:
    for hostile in hostile_values(kind, where):
        walk({**WORLD, kind: altered(WORLD[kind], where, hostile)})


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(HOSTILE)), min_size=2, max_size=6))
def test_nor_do_several_of_them(changes: list[tuple[tuple[type[Any], Where], Any]]) -> None:
    world = dict(WORLD)
    for (kind, where), hostile in changes:
        world[kind] = altered(world[kind], where, hostile)
    walk(world)


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_a_health_check_port_that_no_socket_can_have_is_a_problem(port: int) -> None:
    path = walk({**WORLD, Service: altered(SERVICE, ("spec", "healthCheckNodePort"), port)})
    assert [(problem.subject, problem.reason) for problem in path.problems] == [("Service default/web", "InvalidPort")]
    assert path.frontends == 12, "the rest of the service is in effect"


@pytest.mark.parametrize(("kind", "where"), HOSTILE_PLACES)
def test_no_value_in_any_field_of_a_manifest_ends_its_reading(kind: type[Any], where: Where) -> None:
    versions: dict[type[Any], str] = {
        Service: "v1",
        Node: "v1",
        EndpointSlice: "discovery.k8s.io/v1",
        ServiceCIDR: "networking.k8s.io/v1",
    }
    for hostile in hostile_values(kind, where):
        header = {"apiVersion": versions[kind], "kind": kind.__name__}
        document = {**header, **altered(WORLD[kind], where, hostile)}
        if isinstance(hostile, int) and not -(2**63) <= hostile < 2**64:
            continue
        data = msgspec.json.encode(document)
        for name in ("a.json", "a.yaml"):
            manifest = parse_manifest(name, data, thorough=True)
            assert manifest.objects or manifest.faults
            for problem in merge([ManifestFile(name, manifest)], "here").problems:
                assert all(line.isprintable() for line in log_lines(problem))
