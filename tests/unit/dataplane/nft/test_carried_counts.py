"""Which counts pass to a new element, and what is added to them."""

import pytest

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.carried_counts import Uncounted, carried_keys
from nodeagent.dataplane.nft.image import TableImage, empty_image

FRONTENDS = schema.FRONTENDS
KEY, OTHER = b"one", b"two"


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
    expected = {FRONTENDS: carried} if carried else {}
    assert carried_keys(image(**wanted), image(**programmed), None) == expected
    assert carried_keys(image(**wanted), image(**programmed), {FRONTENDS: {KEY}}) == expected


def test_only_what_is_dirty_is_looked_at() -> None:
    assert carried_keys(image(one=b"3"), image(one=b"2"), {FRONTENDS: {OTHER}}) == {}


def test_what_came_before_the_end_is_added_until_the_element_is_made_anew() -> None:
    uncounted = Uncounted()
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {FRONTENDS: {KEY: 13}}, {FRONTENDS: [KEY]})
    assert uncounted.by_map[FRONTENDS] == {KEY: 3}
    assert uncounted.added_to({FRONTENDS: {KEY: (10, 600)}}) == {FRONTENDS: {KEY: (13, 600)}}
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {FRONTENDS: {KEY: 10}}, {FRONTENDS: [KEY]})
    assert uncounted.by_map[FRONTENDS] == {}


def test_nothing_is_kept_of_an_element_that_is_gone() -> None:
    uncounted = Uncounted()
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {FRONTENDS: {KEY: 13}}, {FRONTENDS: [KEY]})
    uncounted.committed({}, {}, {FRONTENDS: [KEY]})
    assert uncounted.by_map[FRONTENDS] == {}


def test_without_an_echo_nothing_is_added() -> None:
    uncounted = Uncounted()
    uncounted.committed({FRONTENDS: {KEY: (10, 600)}}, {}, {FRONTENDS: [KEY]})
    assert uncounted.by_map[FRONTENDS] == {}
