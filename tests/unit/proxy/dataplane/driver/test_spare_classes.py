"""Spare classes: what a rolling update needs, in large maps only, and no more than a bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.driver.spare_classes import MOST, SPARE_FROM, classes_with_chains, spare_classes
from nodeagent.proxy.dataplane.image.image import TableImage, frontend_key, node_port_key, packed_class
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS, PickClass

ANY_CLASS = st.builds(
    PickClass, st.integers(1, MAX_BACKENDS), cluster_scope=st.booleans(), node_port=st.booleans(), sticky=st.booleans()
)


def counts(*used: int) -> set[int]:
    return {one.count for one in spare_classes(map(PickClass, used))}


@pytest.mark.parametrize(
    ("used", "spare"),
    [
        (1, {2}),
        (2, {1, 3}),
        (8, {6, 7, 9, 10}),
        (10, {7, 8, 9, 11, 12, 13}),
        (MAX_BACKENDS, set(range(MAX_BACKENDS - MOST, MAX_BACKENDS))),
    ],
)
def test_a_rolling_update_by_a_quarter_finds_its_chains(used: int, spare: set[int]) -> None:
    assert counts(used) == spare


def test_used_classes_are_not_spare() -> None:
    assert counts(1, 2, 3) == {4}


def test_the_smallest_changes_are_preferred_if_there_are_too_many() -> None:
    assert counts(40, 1000) == {*range(30, 40), *range(41, 51), *range(978, 1000), *range(1001, 1023)}


@given(st.frozensets(ANY_CLASS, max_size=12))
def test_spare_classes_are_few_and_differ_from_a_used_one_only_in_their_number(used: frozenset[PickClass]) -> None:
    spare = spare_classes(used)
    assert len(spare) <= MOST
    assert not used.intersection(spare)
    kinds = {(one.cluster_scope, one.node_port, one.sticky) for one in used}
    assert {(one.cluster_scope, one.node_port, one.sticky) for one in spare} <= kinds


def test_only_a_large_map_has_spare_chains() -> None:
    def image(backends: int, node_port_backends: int) -> TableImage:
        return {
            schema.FRONTENDS: {frontend_key("10.96.0.10", Protocol.TCP, 80): packed_class(PickClass(1).number)},
            schema.NODEPORTS: {node_port_key(Protocol.TCP, 30080): packed_class(PickClass(1, node_port=True).number)},
            schema.BACKENDS: {bytes((number >> 8, number & 255)): b"" for number in range(backends)},
            schema.NODEPORT_BACKENDS: {bytes((number >> 8, number & 255)): b"" for number in range(node_port_backends)},
        }

    used = {PickClass(1), PickClass(1, node_port=True)}
    assert set(classes_with_chains(image(SPARE_FROM - 1, SPARE_FROM - 1))) == used
    assert set(classes_with_chains(image(SPARE_FROM, SPARE_FROM - 1))) == used | {PickClass(2)}
    assert set(classes_with_chains(image(0, SPARE_FROM))) == used | {PickClass(2, node_port=True)}
