"""Laws: which elements are programmed depends on the present objects only, and every way to know them agrees.

A small universe (few names, addresses, ports) makes conflicts, takeovers and returns the rule.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Fate, Packet
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import Frontend, NodeState, Route, Unserved
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import LABEL_SERVICE_NAME, EndpointSlice, Service, ServiceCIDR
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.image.delta import Delta, apply_delta, diff_images, diff_keys
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import TableImage, class_of, classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.image.render import endpoint_lists, programmed_keys, slot_keys
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import pick_class
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.dataplane.program.schema import DATA_SETS, set_specs
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator
from nodeagent.wire.netlink.framing import attribute_map
from nodeagent.wire.netlink.nf_tables.element_reading import read_elements
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_DELSETELEM, NFT_MSG_NEWSETELEM
from tests.harness.effort import examples

KEYS = [ObjectKey("default", name) for name in ("a", "b", "c", "d")]
CONTEXT = Context(node_name="here", node_addresses=("192.168.0.2", "2001:db8::2"))
NODE = NodeState(("10.96.0.0/16", "fd00:96::/112"), ("10.244.0.0/16", "fd00:244::/32"), ("192.168.0.2/32",))
TIMES = (None, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z")
PORTS = (
    ({"name": "x", "port": 80},),
    ({"name": "x", "port": 80, "nodePort": 30080},),
    ({"name": "x", "port": 80}, {"name": "y", "port": 53, "protocol": "UDP", "nodePort": 30053}),
    ({"name": "y", "port": 80, "protocol": "SCTP"}, {"name": "x", "port": 81, "nodePort": 30080}),
)

Object = dict[str, Any]
services: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {
        "created": st.sampled_from(TIMES),
        "ingress": st.lists(st.sampled_from(("198.51.100.1", "10.96.0.1", "2001:db8:100::1")), max_size=2),
        "clusterIPs": st.sampled_from((["10.96.0.1"], ["10.96.0.2", "fd00:96::2"], ["10.96.0.3"], ["fd00:96::1"])),
        "ports": st.sampled_from(PORTS),
        "externalIPs": st.lists(st.sampled_from(("192.0.2.1", "10.96.0.2", "2001:db8::1")), max_size=1),
        "externalTrafficPolicy": st.sampled_from(("Cluster", "Local")),
        "internalTrafficPolicy": st.sampled_from(("Cluster", "Local")),
        "sessionAffinity": st.sampled_from(("None", "ClientIP")),
        "timeout": st.sampled_from((60, 10800)),
        "loadBalancerSourceRanges": st.lists(st.sampled_from(("203.0.113.0/24", "2001:db8::/32")), max_size=2),
    }
)
members = st.tuples(st.integers(1, 6), st.sampled_from(("here", "there")))
endpoints = st.sets(members, max_size=6)
changes: st.SearchStrategy[tuple[ObjectKey, str, Any]] = st.tuples(
    st.sampled_from(KEYS), st.just("service"), services | st.none()
) | st.tuples(st.sampled_from(KEYS), st.sampled_from(("IPv4", "IPv6")), endpoints | st.none())


plain_services: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {
        "created": st.none(),
        "ingress": st.just([]),
        "clusterIPs": st.sampled_from((["10.96.0.1"], ["10.96.0.2", "fd00:96::2"])),
        "ports": st.sampled_from(
            (({"name": "x", "port": 80},), ({"name": "x", "port": 80}, {"name": "y", "port": 53, "protocol": "SCTP"}))
        ),
        "externalIPs": st.sampled_from(([], [], ["192.0.2.1"])),
        "externalTrafficPolicy": st.just("Cluster"),
        "internalTrafficPolicy": st.just("Cluster"),
        "sessionAffinity": st.sampled_from(("None", "None", "ClientIP")),
        "timeout": st.just(60),
        "loadBalancerSourceRanges": st.just([]),
    }
)
elsewhere = st.sets(st.tuples(st.integers(1, 9), st.sampled_from(("there", "there", "there", "here"))), max_size=9)
plain_changes: st.SearchStrategy[tuple[ObjectKey, str, Any]] = st.tuples(
    st.sampled_from(KEYS[:2]), st.sampled_from(("IPv4", "IPv4", "IPv6")), elsewhere
)


class Cluster:
    """The objects right now, as a snapshot."""

    node = None
    service_cidrs: Collection[ServiceCIDR] = ()

    def __init__(self) -> None:
        self.services: dict[ObjectKey, Service] = {}
        self._slices: dict[tuple[ObjectKey, str], EndpointSlice] = {}

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        found = (self._slices.get((service, family.value)) for family in Family)
        return [item for item in found if item is not None]

    def change(self, key: ObjectKey, what: str, to: Any) -> None:
        """Replace or delete a service, or its slice of one family."""
        if what == "service":
            self.services.pop(key, None)
            if to is not None:
                self.services[key] = service_of(key, **to)
        else:
            self._slices.pop((key, what), None)
            if to is not None:
                self._slices[key, what] = slice_of(key, what, to)


def service_of(key: ObjectKey, *, created: str | None, ingress: Any, timeout: int, **spec: Any) -> Service:
    sticky = {"clientIP": {"timeoutSeconds": timeout}}
    fields = {
        "metadata": {"name": key.name, "namespace": key.namespace, "creationTimestamp": created},
        "spec": {"type": "LoadBalancer", "clusterIP": spec["clusterIPs"][0], "sessionAffinityConfig": sticky, **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": address} for address in ingress]}},
    }
    families = ["IPv6" if ":" in address else "IPv4" for address in spec["clusterIPs"]]
    fields["spec"]["ipFamilies"] = families
    return msgspec.convert(fields, Service)


def slice_of(key: ObjectKey, family: str, numbers: Collection[tuple[int, str]]) -> EndpointSlice:
    prefix = "10.244.1." if family == "IPv4" else "fd00:244::"
    fields = {
        "metadata": {
            "name": f"{key.name}-{family}",
            "namespace": key.namespace,
            "labels": {LABEL_SERVICE_NAME: key.name},
        },
        "addressType": family,
        "endpoints": [{"addresses": [f"{prefix}{number}"], "nodeName": node} for number, node in sorted(numbers)],
        "ports": [
            {"name": "x", "port": 8080},
            {"name": "y", "port": 5353, "protocol": "UDP"},
            {"name": "y", "port": 9999, "protocol": "SCTP"},
        ],
    }
    return msgspec.convert(fields, EndpointSlice)


def lists_in(image: TableImage) -> dict[bytes, list[bytes]]:
    """The lists of endpoints as they are fetched from the kernel: none if a slot is empty."""
    lists: dict[bytes, list[bytes]] = {}
    for name in (schema.BACKENDS, schema.NODEPORT_BACKENDS):
        keys = list(programmed_keys(image, name))
        if len(set(keys)) == len(keys) == len(image[name]) and image[name].keys() == set(keys):
            lists |= endpoint_lists(image, name, {key: image[name][key] for key in keys})
    return lists


class Table:
    """What a driver does with a family's changes, without a kernel: every delta is a commit that worked.

    found: what the kernel holds when the driver starts; None: nothing. listed: its endpoints were read list by list."""

    def __init__(self, family: Family, found: TableImage | None = None, *, listed: bool = False) -> None:
        self.family = family
        self.desired = DesiredImage(family)
        self.programmed: TableImage = empty_image(DATA_SETS)
        if found is not None:
            self.programmed = {name: dict(elements) for name, elements in found.items()}
            image = {name: dict(elements) for name, elements in found.items()}
            self.desired.take_over(image, lists_in(image) if listed else {})
        self.translator = Translator()

    def sync(self, cluster: Cluster, dirty: Collection[ObjectKey] | None = None) -> Delta:
        """One pass; None: everything may have changed."""
        changed = self.translator.update(cluster, dirty, CONTEXT)
        self.desired.update(changed, self.desired.programmed)
        self.desired.set_node(NODE)
        assert self.desired.programmed == self.programmed  # a view of the image as it was, however much changed
        delta = diff_keys(self.desired.take_dirty(), self.desired.image, self.programmed)
        apply_delta(self.programmed, delta)
        return delta


FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
full = st.tuples(
    *(st.tuples(st.just(key), st.just("service"), services) for key in KEYS[:3]),
    *(st.tuples(st.just(key), st.sampled_from(("IPv4", "IPv6")), st.sets(members, min_size=1)) for key in KEYS[:3]),
)
"""A first step that leaves little undefined."""
sequences = st.builds(lambda first, rest: [[*first], *rest], full, st.lists(st.lists(changes, max_size=6), max_size=6))
thorough = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
usual = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))

SPECS = {spec.name: spec for spec in set_specs(counters=True)}
ROUTE_MAPS = (
    (schema.FRONTENDS, schema.BACKENDS),
    (schema.GUARDED_FRONTENDS, schema.BACKENDS),
    (schema.FRONTENDS_CLUSTER_SCOPE, schema.BACKENDS),
    (schema.FRONTENDS_LOCAL_SCOPE, schema.BACKENDS),
    (schema.NODEPORTS, schema.NODEPORT_BACKENDS),
    (schema.NODEPORTS_CLUSTER_SCOPE, schema.NODEPORT_BACKENDS),
    (schema.NODEPORTS_LOCAL_SCOPE, schema.NODEPORT_BACKENDS),
)


def canonical(image: TableImage) -> dict[str, Any]:
    """The image with the endpoints of each route as a set; their slots must be exactly those the class counts."""
    form: dict[str, Any] = {name: dict(elements) for name, elements in image.items()}
    for frontends, backends in ROUTE_MAPS:
        routes = form.setdefault(f"{frontends} routes", {})
        for key, value in image[frontends].items():
            picked = pick_class(class_of(value))
            if picked is not None:
                keys = [key + slot for slot in slot_keys(picked)]
                routes[key] = {form[backends].pop(each) for each in keys}
                assert len(routes[key]) == picked.count, "an endpoint has two slots"
    assert not form[schema.BACKENDS], "a slot beyond the count"
    assert not form[schema.NODEPORT_BACKENDS], "a slot beyond the count"
    return form


def from_scratch(cluster: Cluster, family: Family) -> Table:
    table = Table(family)
    table.sync(cluster)
    return table


@FAMILIES
@thorough
@given(sequence=sequences)
def test_step_by_step_ends_where_a_fresh_start_does(family: Family, sequence: list[Any]) -> None:
    cluster, table = Cluster(), Table(family)
    for step in sequence:
        for change in step:
            cluster.change(*change)
        table.sync(cluster, {key for key, _, _ in step})

        assert table.programmed == table.desired.image
        assert canonical(table.programmed) == canonical(from_scratch(cluster, family).programmed)


@FAMILIES
@thorough
@given(
    first=st.lists(plain_services, min_size=2, max_size=2),
    later=st.lists(
        st.lists(plain_changes, max_size=4) | st.lists(st.tuples(st.just(KEYS[0]), st.just("service"), plain_services)),
        max_size=8,
    ),
)
def test_endpoints_that_come_and_go_end_where_a_fresh_start_does(
    family: Family, first: list[Object], later: list[Any]
) -> None:
    """Of services like most: their elements are amended, not rendered."""
    cluster, table = Cluster(), Table(family)
    for step in ([*zip(KEYS, ("service", "service"), first, strict=False)], *later):
        for change in step:
            cluster.change(*change)
        table.sync(cluster, {key for key, _, _ in step})

        assert table.programmed == table.desired.image
        assert canonical(table.programmed) == canonical(from_scratch(cluster, family).programmed)


@FAMILIES
@usual
@given(sequence=sequences)
def test_a_pass_without_changes_writes_nothing(family: Family, sequence: list[Any]) -> None:
    cluster, table = Cluster(), Table(family)
    for change in (change for step in sequence for change in step):
        cluster.change(*change)
    table.sync(cluster)

    assert table.sync(cluster).empty
    assert table.sync(cluster, KEYS).empty
    assert diff_images(table.desired.image, table.programmed).empty


@FAMILIES
@usual
@given(sequence=sequences, data=st.data())
def test_when_and_in_which_order_changes_arrive_makes_no_difference(
    family: Family, sequence: list[Any], data: st.DataObject
) -> None:
    """Reordered (those of one object keep their order), split into single passes, or squashed into one."""
    events = [change for step in sequence for change in step]
    cluster, table = Cluster(), Table(family)
    pending: set[ObjectKey] = set()
    left = list(events)
    while left:
        chosen = data.draw(st.integers(0, len(left) - 1))
        first = next(at for at, event in enumerate(left) if event[:2] == left[chosen][:2])
        change = left.pop(first)
        cluster.change(*change)
        pending.add(change[0])
        if data.draw(st.booleans()):
            table.sync(cluster, pending)
            pending = set()
    table.sync(cluster, pending)

    in_order = Cluster()
    for change in events:
        in_order.change(*change)
    assert canonical(table.programmed) == canonical(from_scratch(in_order, family).programmed)


damage = st.lists(st.tuples(st.sampled_from(DATA_SETS), st.integers(0, 99), st.integers(0, 99)), max_size=8)
"""Set, and two numbers of elements: an even first one is removed; an odd one, and another key, get the value of the second."""


def damaged(image: TableImage, edits: Iterable[tuple[str, int, int]]) -> TableImage:
    """Returns the image after other processes' edits."""
    found = {name: dict(elements) for name, elements in image.items()}
    for name, one, other in edits:
        elements = found[name]
        keys = sorted(elements)
        if not keys:
            continue
        key = keys[one % len(keys)]
        if one % 2:
            elements[key] = elements[bytes([other]) + key[1:]] = elements[keys[other % len(keys)]]
        else:
            del elements[key]
    return found


@FAMILIES
@thorough
@given(sequence=sequences, missed=st.lists(changes, max_size=4), edits=damage, listed=st.booleans())
def test_a_restart_ends_where_a_fresh_start_does_whatever_the_kernel_holds(
    family: Family, sequence: list[Any], missed: list[Any], edits: list[tuple[str, int, int]], listed: bool
) -> None:
    cluster, before = Cluster(), Table(family)
    for step in sequence:
        for change in step:
            cluster.change(*change)
        before.sync(cluster, {key for key, _, _ in step})
    assert Table(family, before.programmed, listed=listed).sync(cluster).empty
    for change in missed:
        cluster.change(*change)

    table = Table(family, damaged(before.programmed, edits), listed=listed)
    table.sync(cluster)

    assert table.programmed == table.desired.image
    assert canonical(table.programmed) == canonical(from_scratch(cluster, family).programmed)
    assert table.sync(cluster).empty


@pytest.mark.parametrize("others", [10, 1000])
@pytest.mark.parametrize(
    "after",
    [
        pytest.param(range(1, 12), id="one more"),
        pytest.param(range(1, 10), id="the last one gone"),
        pytest.param(range(2, 11), id="the first one gone"),
        pytest.param([*range(1, 5), *range(6, 11)], id="one in the middle gone"),
        pytest.param([*range(1, 5), 77, *range(6, 11)], id="one replaced"),
    ],
)
@pytest.mark.parametrize("where", ["here", "there"])
def test_one_endpoint_of_a_cluster_ip_is_at_most_four_elements_at_any_size(
    others: int, after: Iterable[int], where: str
) -> None:
    cluster, table = Cluster(), Table(Family.IPV4)
    ports = [{"name": "x", "port": 80}]
    for number in range(others):
        key = ObjectKey("default", f"s{number}")
        address = f"10.96.{number >> 8}.{number & 255}"
        cluster.services[key] = service_of(key, created=None, ingress=[], timeout=60, clusterIPs=[address], ports=ports)
        cluster.change(key, "IPv4", {(endpoint, where) for endpoint in range(1, 11)})
    table.sync(cluster)
    changed = ObjectKey("default", f"s{others // 2}")
    cluster.change(changed, "IPv4", {(endpoint, where) for endpoint in after})

    # Endpoints of other services are on the same addresses here, so none becomes or stops being a hairpin address.
    assert 1 <= table.sync(cluster, {changed}).touched <= 4


def replayed(transaction: Transaction, programmed: TableImage) -> TableImage:
    """What the kernel would hold after the element messages of a transaction, read as a dump is read."""
    image = {name: dict(elements) for name, elements in programmed.items()}
    for message in transaction.messages:
        if message.kind in (NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM):
            name = bytes(attribute_map(memoryview(message.body))[2]).rstrip(b"\0").decode()
            elements = read_elements(SPECS[name].form(transaction.family), [memoryview(message.body)]).elements
            assert set(elements) == set(message.keys)
            if message.kind == NFT_MSG_NEWSETELEM:
                image[name].update(elements)
            else:
                for key in elements:
                    del image[name][key]
    return image


@FAMILIES
@usual
@given(sequence=sequences)
def test_written_elements_read_back_as_wanted(family: Family, sequence: list[Any]) -> None:
    cluster, table = Cluster(), Table(family)
    kernel = empty_image(DATA_SETS)
    for step in sequence:
        for change in step:
            cluster.change(*change)
        transaction = Transaction(family, SPECS)
        transaction.write_delta(table.sync(cluster, {key for key, _, _ in step}))
        kernel = replayed(transaction, kernel)

        assert kernel == table.desired.image


CLIENTS = {"outside": "203.0.113.9", "pod": "10.244.9.9"}


@usual
@given(sequence=sequences)
def test_the_rules_lead_every_client_to_the_endpoints_the_translation_chose(sequence: list[Any]) -> None:
    cluster = Cluster()
    for change in (change for step in sequence for change in step):
        cluster.change(*change)
    table = from_scratch(cluster, Family.IPV4)
    image = {**table.programmed, schema.AFFINITY: {}}
    options = ProgramOptions(PodDetection.CIDR)
    program = build_program(Family.IPV4, options, classes_in(image), timeouts_in(image))
    interpreter = Interpreter(program, SPECS, image, ["192.168.0.2", "10.96.0.1"])
    for frontend in (f for state in table.translator.states.values() for f in state.frontends):
        if frontend.family is Family.IPV4:
            for client, source in CLIENTS.items():
                route = frontend.short_circuit if client == "pod" and frontend.short_circuit else frontend.route
                allowed = frontend.allowed_sources is None or (client == "outside" and frontend.allowed_sources)
                check(interpreter, frontend, source, route if allowed else Route((), otherwise=Unserved.DROP))


def check(interpreter: Interpreter, frontend: Frontend, source: str, route: Route) -> None:
    packet = Packet(source, frontend.address or "192.168.0.2", frontend.protocol, frontend.port)
    outcomes = interpreter.outcomes(packet)
    wanted = {(backend.address, backend.port) for backend in route.backends}
    if wanted:
        assert {outcome.endpoint for outcome in outcomes} == wanted
        assert len(outcomes) == len(wanted), "not every endpoint is equally likely"
        assert all(outcome.priority == 0 for outcome in outcomes)
        assert all(bool(outcome.learned) is (frontend.affinity_seconds is not None) for outcome in outcomes)
    else:
        refused = Fate.REFUSED if route.otherwise is Unserved.REFUSE else Fate.DROPPED
        assert {outcome.fate for outcome in outcomes} == {refused}
