"""Law: what the translator says depends on the present objects only, not on how they came about.

A small universe (few names, few addresses, few times) makes conflicts, takeovers and returns the rule.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.frontend import FrontendKind, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, ServiceCIDR
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator

Objects = st.SearchStrategy[dict[str, Any]]

KEYS = [ObjectKey("default", name) for name in ("a", "b", "c", "d")]
CLUSTER_IPS = st.sampled_from(["10.96.0.1", "10.96.0.2", "fd00:96::1", "None"])
OTHER_IPS = st.lists(st.sampled_from(["192.0.2.1", "10.96.0.1", "2001:db8::1", "bogus"]), max_size=2)
TIMES = st.sampled_from([None, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"])

ports: Objects = st.builds(
    dict,
    name=st.sampled_from(["x", "y"]),
    port=st.sampled_from([80, 81]),
    protocol=st.sampled_from(["TCP", "UDP"]),
    nodePort=st.sampled_from([0, 30080, 30081]),
)
specs: Objects = st.builds(
    dict,
    clusterIP=CLUSTER_IPS,
    type=st.sampled_from(["ClusterIP", "LoadBalancer", "ExternalName"]),
    ports=st.lists(ports, min_size=1, max_size=2),
    externalIPs=OTHER_IPS,
    externalTrafficPolicy=st.sampled_from(["Cluster", "Local"]),
    healthCheckNodePort=st.sampled_from([0, 31000]),
    loadBalancerSourceRanges=st.lists(st.sampled_from(["203.0.113.0/24", "bogus"]), max_size=1),
)
endpoints: Objects = st.builds(
    dict,
    addresses=st.sampled_from([["10.0.0.1"], ["10.0.0.2"], ["127.0.0.1"], []]),
    nodeName=st.sampled_from(["here", "there"]),
    conditions=st.builds(dict, ready=st.booleans(), terminating=st.booleans()),
    hints=st.sampled_from([None, {"forZones": [{"name": "a"}]}, {"forZones": [{"name": "b"}]}]),
)
contexts = st.builds(
    Context,
    node_name=st.sampled_from(["here", "here", "there"]),
    zone=st.sampled_from([None, "a", "b"]),
    node_addresses=st.sampled_from([(), ("192.0.2.9",), ("203.0.113.9",)]),
    external_ips_enabled=st.sampled_from([True, True, False]),
)


@st.composite
def services(draw: st.DrawFn, key: ObjectKey) -> Service:
    metadata = {"name": key.name, "namespace": key.namespace, "creationTimestamp": draw(TIMES)}
    status = {"loadBalancer": {"ingress": [{"ip": address} for address in draw(OTHER_IPS)]}}
    return msgspec.convert({"metadata": metadata, "spec": draw(specs), "status": status}, Service)


@st.composite
def slice_lists(draw: st.DrawFn, key: ObjectKey) -> tuple[EndpointSlice, ...]:
    fields = {
        "metadata": {"name": f"{key.name}-1", "namespace": key.namespace},
        "addressType": "IPv4",
        "endpoints": draw(st.lists(endpoints, max_size=2)),
        "ports": [{"name": "x", "port": 8080, "protocol": "TCP"}, {"name": "y", "port": 53, "protocol": "UDP"}],
    }
    return (msgspec.convert(fields, EndpointSlice),)


class World:
    """The objects right now, as a snapshot."""

    node = None
    service_cidrs: Collection[ServiceCIDR] = ()

    def __init__(self) -> None:
        self.services: dict[ObjectKey, Service] = {}
        self.slices: dict[ObjectKey, tuple[EndpointSlice, ...]] = {}

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return self.slices.get(service, ())

    def change(self, key: ObjectKey, data: st.DataObject) -> None:
        """Replace the service, replace its slices, or delete one of them."""
        what = data.draw(st.sampled_from(["service", "service", "slices", "no service", "no slices"]))
        if what == "service":
            self.services[key] = data.draw(services(key))
        elif what == "slices":
            self.slices[key] = data.draw(slice_lists(key))
        elif what == "no service":
            self.services.pop(key, None)
        else:
            self.slices.pop(key, None)


def from_scratch(world: World, context: Context) -> Mapping[ObjectKey, ServiceState]:
    translator = Translator()
    translator.update(world, None, context)
    return translator.states


@given(st.data())
def test_incremental_equals_from_scratch_and_the_answers_add_up(data: st.DataObject) -> None:
    world, translator, reported = World(), Translator(), dict[ObjectKey, ServiceState]()
    context = data.draw(contexts)
    for _ in range(data.draw(st.integers(1, 6))):
        dirty = data.draw(st.sets(st.sampled_from(KEYS)))
        for key in dirty:
            world.change(key, data)
        if data.draw(st.integers(0, 2)) == 0:
            context = data.draw(contexts)
        answer = translator.update(world, data.draw(st.sampled_from([dirty, None])), context)
        for key, state in answer.items():
            assert reported.get(key) != state, "reported although nothing changed"
            if state is None:
                del reported[key]
            else:
                reported[key] = state
        assert reported == translator.states == from_scratch(world, context)


@given(st.data())
def test_no_place_has_two_frontends_and_no_cluster_ip_another_service(data: st.DataObject) -> None:
    world = World()
    for key in KEYS:
        world.services[key] = data.draw(services(key))
    states = from_scratch(world, Context(node_name="here"))
    owners: dict[Any, ObjectKey] = {}
    for state in states.values():
        for frontend in state.frontends:
            assert frontend.place not in owners
            owners[frontend.place] = state.key
    cluster_ips = {address: {s.key for s in states.values() if address in s.cluster_ips} for address in ("10.96.0.1",)}
    for state in states.values():
        for frontend in state.frontends:
            if frontend.kind is not FrontendKind.CLUSTER_IP and frontend.address in cluster_ips:
                assert not cluster_ips[frontend.address] - {state.key}


@given(st.data())
def test_a_service_without_its_frontend_is_reported_and_another_has_it(data: st.DataObject) -> None:
    world = World()
    for key in KEYS:
        world.services[key] = data.draw(services(key))
    context = Context(node_name="here")
    together = from_scratch(world, context)
    taken = {f.place for state in together.values() for f in state.frontends}
    cluster_ips = {address for state in together.values() for address in state.cluster_ips}
    for key, service in world.services.items():
        alone = World()
        alone.services[key] = service
        wanted = from_scratch(alone, context).get(key)
        if wanted is None:
            continue
        lost = {f.place for f in wanted.frontends} - {f.place for f in together[key].frontends}
        conflicts = [problem for problem in together[key].problems if problem.reason == "AddressConflict"]
        assert len(conflicts) == len(lost)
        assert all(place in taken or place[1] in cluster_ips for place in lost)
