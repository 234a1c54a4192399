"""Laws of endpoint selection: order carries no meaning, lists are pure, a Local list stays on the node."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Scope, Unserved
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.select import Policies, choose_routes
from nodeagent.proxy.translate.service_endpoints import Candidate, collect_endpoints
from nodeagent.proxy.translate.services import translate_service

CONTEXT = Context(node_name="here", zone="zone-a", node_addresses=("192.168.0.2",))
THREE_VALUED = st.sampled_from([True, False, None])
ZONES = st.lists(st.sampled_from(["zone-a", "zone-b"]), max_size=2, unique=True)
NODES = st.lists(st.sampled_from(["here", "there"]), max_size=2, unique=True)

endpoints = st.builds(
    lambda address, node, conditions, zones, nodes: {
        "addresses": [address],
        "nodeName": node,
        "conditions": conditions,
        "hints": {"forZones": [{"name": zone} for zone in zones], "forNodes": [{"name": node} for node in nodes]},
    },
    st.sampled_from(["10.0.0.1", "10.0.0.2", "010.0.0.1", "127.0.0.1"]),
    st.sampled_from(["here", None]),
    st.none() | st.builds(dict, ready=THREE_VALUED, serving=THREE_VALUED, terminating=THREE_VALUED),
    ZONES,
    NODES,
)
ports = st.lists(st.sampled_from([8080, 9090]), min_size=1, max_size=2)
slices = st.lists(st.tuples(st.lists(endpoints, max_size=4), ports), max_size=3)
candidates = st.lists(
    st.builds(
        Candidate,
        st.builds(Backend, st.sampled_from(["a", "b", "c", "d"]), st.just(80), st.booleans()),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        ZONES.map(tuple),
        NODES.map(tuple),
    ),
    unique_by=lambda candidate: candidate.backend.address,
)
policies = st.builds(Policies, st.booleans(), st.booleans())

SERVICE = msgspec.convert(
    {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.1",
            "ports": [{"port": 80, "nodePort": 30080}],
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000,
        },
    },
    Service,
)


def endpoint_slice(name: str, members: list[Any], numbers: list[int]) -> EndpointSlice:
    fields = {
        "metadata": {"name": name, "namespace": "default"},
        "addressType": "IPv4",
        "endpoints": members,
        "ports": [{"name": "", "port": number, "protocol": "TCP"} for number in numbers],
    }
    return msgspec.convert(fields, EndpointSlice)


@given(slices, st.randoms(use_true_random=False))
def test_the_order_of_slices_and_endpoints_makes_no_difference(listed: Any, random: Any) -> None:
    straight = [endpoint_slice(f"web-{n}", members, numbers) for n, (members, numbers) in enumerate(listed)]
    shuffled = [
        endpoint_slice(f"web-{n}", random.sample(members, len(members)), random.sample(numbers, len(numbers)))
        for n, (members, numbers) in enumerate(listed)
    ]
    random.shuffle(shuffled)
    assert collect_endpoints(straight, CONTEXT, []) == collect_endpoints(shuffled, CONTEXT, [])
    assert translate_service(SERVICE, straight, CONTEXT) == translate_service(SERVICE, shuffled, CONTEXT)


@given(slices)
def test_endpoints_may_move_between_slices(listed: Any) -> None:
    """One slice per endpoint and port says the same as the slices in which they were."""
    grouped = [endpoint_slice("web-1", members, numbers) for members, numbers in listed]
    single = [
        endpoint_slice("web-1", [member], [number])
        for members, numbers in listed
        for member in members
        for number in numbers
    ]
    key = (Family.IPV4, "", Protocol.TCP)
    assert collect_endpoints(grouped, CONTEXT, []).get(key, []) == collect_endpoints(single, CONTEXT, []).get(key, [])


@given(slices)
def test_an_endpoint_that_is_not_ready_does_not_change_the_others(listed: Any) -> None:
    """Slices in which all endpoints are ready take a way of their own."""
    other = {"addresses": ["192.0.2.99"], "conditions": {"ready": False}}
    alone = [endpoint_slice(f"web-{n}", members, numbers) for n, (members, numbers) in enumerate(listed)]
    beside = [endpoint_slice(f"web-{n}", [*members, other], numbers) for n, (members, numbers) in enumerate(listed)]
    found = collect_endpoints(beside, CONTEXT, [])
    assert {key: list(candidates) for key, candidates in collect_endpoints(alone, CONTEXT, []).items()} == {
        key: [one for one in candidates if one.backend.address != "192.0.2.99"] for key, candidates in found.items()
    }


@given(candidates, policies)
def test_no_list_mixes_ready_and_draining_endpoints(found: list[Candidate], chosen: Policies) -> None:
    ready = {candidate.backend for candidate in found if candidate.ready}
    draining = {c.backend for c in found if not c.ready and c.serving and c.terminating}
    routes = choose_routes(found, chosen, CONTEXT)
    for route in (routes.internal, routes.external, routes.short_circuit):
        if route is not None:
            backends = set(route.backends)
            assert backends <= ready or backends <= draining
            assert len(backends) == len(route.backends)


@given(candidates, policies)
def test_a_local_list_is_on_this_node_and_ready_endpoints_are_never_passed_over(
    found: list[Candidate], chosen: Policies
) -> None:
    routes = choose_routes(found, chosen, CONTEXT)
    usable = [c for c in found if c.ready or (c.serving and c.terminating)]
    for route in (routes.internal, routes.external):
        here = [c for c in usable if c.backend.local or route.scope is Scope.CLUSTER]
        assert bool(route.backends) is bool(here)
        if route.scope is Scope.LOCAL:
            assert all(backend.local for backend in route.backends)
            assert set(route.backends) >= {c.backend for c in here if c.ready}
            assert route.otherwise is (Unserved.DROP if usable else Unserved.REFUSE)


@given(candidates)
def test_topology_never_removes_the_last_endpoint(found: list[Candidate]) -> None:
    route = choose_routes(found, Policies(False, False), CONTEXT).internal
    assert bool(route.backends) is any(c.ready or (c.serving and c.terminating) for c in found)
