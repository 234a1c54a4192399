"""Which counts pass to a new element, and what is added to them."""

import pytest

from nodeagent.proxy.dataplane.image.carried_counts import Uncounted, begun_with, carried_keys
from nodeagent.proxy.dataplane.image.image import TableImage, empty_image, packed_class
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import CLUSTER_SCOPE_OFFSET

FRONTENDS, BACKENDS = schema.FRONTENDS, schema.BACKENDS
KEY, OTHER = b"one", b"two"
SAME = {FRONTENDS: {KEY: KEY}}
WEB, SHOP = b"web.", b"shop"


def image(**elements: bytes) -> TableImage:
    return {**empty_image(schema.DATA_SETS), FRONTENDS: {name.encode(): value for name, value in elements.items()}}


@pytest.mark.parametrize(
    ("wanted", "programmed", "carried"),
    [
        pytest.param({"one": b"3"}, {"one": b"2"}, [KEY], id="another value"),
        pytest.param({"one": b"3"}, {"one": b"3"}, [], id="the same value"),
        pytest.param({"one": b"3"}, {}, [], id="new"),
        pytest.param({}, {"one": b"3"}, [], id="gone"),
    ],
)
def test_an_element_that_gets_another_value_passes_its_count_on(
    wanted: dict[str, bytes], programmed: dict[str, bytes], carried: list[bytes]
) -> None:
    expected = {FRONTENDS: {key: key for key in carried}} if carried else {}
    assert carried_keys(image(**wanted), image(**programmed), None) == expected
    assert carried_keys(image(**wanted), image(**programmed), {FRONTENDS: {KEY}}) == expected


def test_only_what_is_dirty_is_looked_at() -> None:
    assert carried_keys(image(one=b"3"), image(one=b"2"), {FRONTENDS: {OTHER}}) == {}


def test_earlier_counts_are_added_until_the_element_is_rebuilt() -> None:
    uncounted = Uncounted()
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {FRONTENDS: {KEY: 13}}, {FRONTENDS: [KEY]}, SAME)
    assert uncounted.by_map[FRONTENDS] == {KEY: 3}
    assert uncounted.added_to({FRONTENDS: {KEY: (10, 600)}}) == {FRONTENDS: {KEY: (13, 600)}}
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {FRONTENDS: {KEY: 10}}, {FRONTENDS: [KEY]}, SAME)
    assert uncounted.by_map[FRONTENDS] == {}


def test_nothing_is_kept_of_an_element_that_is_gone() -> None:
    uncounted = Uncounted()
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {FRONTENDS: {KEY: 13}}, {FRONTENDS: [KEY]}, SAME)
    uncounted.committed({}, {}, {FRONTENDS: [KEY]}, {})
    assert uncounted.by_map[FRONTENDS] == {}


def test_without_an_echo_nothing_is_added() -> None:
    uncounted = Uncounted()
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {}, {FRONTENDS: [KEY]}, SAME)
    assert uncounted.by_map[FRONTENDS] == {}


def slots(frontend: bytes, *endpoints: bytes, first: int = 0) -> dict[bytes, bytes]:
    return {frontend + packed_class(first + slot): endpoint for slot, endpoint in enumerate(endpoints)}


def slot(frontend: bytes, number: int) -> bytes:
    return frontend + packed_class(number)


def backends(*lists: dict[bytes, bytes]) -> TableImage:
    return {
        **empty_image(schema.DATA_SETS),
        BACKENDS: {key: value for elements in lists for key, value in elements.items()},
    }


def test_an_endpoint_takes_its_count_along_to_another_slot() -> None:
    programmed, wanted = backends(slots(WEB, b"a", b"b", b"c")), backends(slots(WEB, b"c", b"b"))
    assert carried_keys(wanted, programmed, None) == {BACKENDS: {slot(WEB, 0): slot(WEB, 2)}}
    dirty = {BACKENDS: {slot(WEB, 0), slot(WEB, 2)}}
    assert carried_keys(wanted, programmed, dirty) == {BACKENDS: {slot(WEB, 0): slot(WEB, 2)}}


def test_an_endpoint_that_comes_takes_over_nothing_of_the_one_that_left() -> None:
    assert carried_keys(backends(slots(WEB, b"new")), backends(slots(WEB, b"old")), None) == {}


def test_the_same_endpoint_counts_for_each_frontend_and_each_of_its_lists_by_itself() -> None:
    local, wide = slots(WEB, b"x", b"a"), slots(WEB, b"a", first=CLUSTER_SCOPE_OFFSET)
    programmed = backends(local, wide, slots(SHOP, b"a", b"y"))
    wanted = backends(slots(WEB, b"a"), wide, slots(SHOP, b"y"))
    assert carried_keys(wanted, programmed, None) == {
        BACKENDS: {slot(WEB, 0): slot(WEB, 1), slot(SHOP, 0): slot(SHOP, 1)}
    }


def test_counts_of_all_endpoints_go_on_in_a_rebuilt_table() -> None:
    programmed, wanted = backends(slots(WEB, b"a", b"b")), backends(slots(WEB, b"b", b"a"))
    assert carried_keys(wanted, programmed, None, anew=True) == {
        BACKENDS: {slot(WEB, 0): slot(WEB, 1), slot(WEB, 1): slot(WEB, 0)}
    }


def test_counts_of_a_moved_endpoint_are_added_at_its_new_place() -> None:
    old, new = slot(WEB, 2), slot(WEB, 0)
    moved = {BACKENDS: {new: old}}
    uncounted = Uncounted()
    counted = {BACKENDS: {old: (10, 600)}}
    assert begun_with(uncounted.added_to(counted), moved) == {BACKENDS: {new: (10, 600)}}
    uncounted.committed(counted, {BACKENDS: {old: 12}}, {BACKENDS: [old, new]}, moved)
    assert uncounted.by_map[BACKENDS] == {new: 2}
    back = {BACKENDS: {old: new}}
    counted = {BACKENDS: {new: (15, 900)}}
    assert begun_with(uncounted.added_to(counted), back) == {BACKENDS: {old: (17, 900)}}
    uncounted.committed(counted, {BACKENDS: {new: 15}}, {BACKENDS: [new]}, back)
    assert uncounted.by_map[BACKENDS] == {}
