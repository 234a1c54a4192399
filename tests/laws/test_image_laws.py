"""Laws: which elements are programmed depends on the present objects only, and every way to know them agrees."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Fate, Packet
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import Frontend, Route, Unserved
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.image.delta import diff_images
from nodeagent.proxy.dataplane.image.image import TableImage, classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.dataplane.program.schema import DATA_SETS, set_specs
from nodeagent.wire.netlink.framing import attribute_map
from nodeagent.wire.netlink.nf_tables.element_reading import read_elements
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_DELSETELEM, NFT_MSG_NEWSETELEM
from tests.laws.image_universe import (
    FAMILIES,
    KEYS,
    Cluster,
    Object,
    Table,
    canonical,
    changes,
    damage,
    damaged,
    from_scratch,
    plain_changes,
    plain_services,
    sequences,
    service_of,
    thorough,
    usual,
)

SPECS = {spec.name: spec for spec in set_specs(counters=True)}


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
