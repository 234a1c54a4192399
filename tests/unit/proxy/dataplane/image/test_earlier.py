"""A set's elements as they were: all ways to read them agree with a copy made before the changes."""

import pytest

from nodeagent.proxy.dataplane.image.earlier import EarlierElements, values_at

KEPT, CHANGED, REMOVED, ADDED, NEVER = b"kept", b"changed", b"removed", b"added", b"never"
COPY = {KEPT: b"1", CHANGED: b"2", REMOVED: b"3"}
PRESENT = {KEPT: b"1", CHANGED: b"9", ADDED: b"4"}
BEFORE = {CHANGED: b"2", REMOVED: b"3", ADDED: None}


@pytest.fixture(params=["changed", "settled"])
def earlier(request: pytest.FixtureRequest) -> EarlierElements:
    return EarlierElements(PRESENT, BEFORE) if request.param == "changed" else EarlierElements(dict(COPY), {})


def test_the_earlier_image_reads_like_a_copy(earlier: EarlierElements) -> None:
    assert earlier == COPY
    assert dict(earlier.items()) == COPY
    assert (set(earlier), set(earlier.keys()), sorted(earlier.values())) == (
        set(COPY),
        set(COPY),
        sorted(COPY.values()),
    )
    assert len(earlier) == len(COPY)


@pytest.mark.parametrize("key", [KEPT, CHANGED, REMOVED, ADDED, NEVER])
def test_a_key_has_the_value_of_the_copy(earlier: EarlierElements, key: bytes) -> None:
    assert (earlier.get(key), earlier.get(key, b"?"), key in earlier) == (
        COPY.get(key),
        COPY.get(key, b"?"),
        key in COPY,
    )
    if key in COPY:
        assert earlier[key] == COPY[key]
    else:
        with pytest.raises(KeyError):
            earlier[key]


def test_many_keys_are_read_at_once(earlier: EarlierElements) -> None:
    keys = [KEPT, CHANGED, REMOVED, ADDED, NEVER]
    assert values_at(earlier, keys) == values_at(COPY, keys) == [b"1", b"2", b"3", None, None]


def test_the_earlier_image_differs_from_the_present_elements() -> None:
    assert EarlierElements(PRESENT, BEFORE) != PRESENT
    assert EarlierElements(PRESENT, BEFORE) != EarlierElements(PRESENT, {})
