"""Elements in answers of the kernel: the fast ways read the same as the slow one, and leave to it what has another form."""

import pytest

from nodeagent.wire.netlink.framing import attribute, string
from nodeagent.wire.netlink.netfilter import u64
from nodeagent.wire.netlink.nf_tables.element_reading import AnswerShape, read_counters, read_counts, read_elements
from nodeagent.wire.netlink.nf_tables.elements import ElementForm, comment_attribute
from nodeagent.wire.netlink.nf_tables.ruleset_objects import named_set
from nodeagent.wire.netlink.uapi import nf_tables as uapi

ENDPOINTS = ElementForm(16, 8, is_map=True, concatenated=True)
COUNTED_ENDPOINTS = ElementForm(16, 8, is_map=True, concatenated=True, counted=True)
FRONTENDS = ElementForm(12, 4, is_map=True, concatenated=True, commented=True, counted=True)
FORMS = [
    pytest.param(ENDPOINTS, id="plain"),
    pytest.param(COUNTED_ENDPOINTS, id="counted"),
    pytest.param(FRONTENDS, id="counted with comments"),
]


def element(form: ElementForm, at: int, *, expires: bool = False) -> bytes:
    """An element as the kernel sends it."""
    key = attribute(uapi.NFTA_DATA_VALUE, bytes([at] * form.key_length))
    value = attribute(uapi.NFTA_DATA_VALUE, bytes([at + 100] * form.value_length))
    inner = attribute(uapi.NFTA_SET_ELEM_KEY, key) + attribute(uapi.NFTA_SET_ELEM_DATA, value)
    if form.counted:
        numbers = u64(uapi.NFTA_COUNTER_BYTES, 60 * at) + u64(uapi.NFTA_COUNTER_PACKETS, at)
        counter = string(uapi.NFTA_EXPR_NAME, "counter") + attribute(uapi.NFTA_EXPR_DATA, numbers)
        inner += attribute(uapi.NFTA_SET_ELEM_EXPR, counter)
    if expires:
        inner += u64(uapi.NFTA_SET_ELEM_TIMEOUT, 2000) + u64(uapi.NFTA_SET_ELEM_EXPIRATION, 1000)
    if form.commented and at % 3:
        inner += comment_attribute(b"shop/web" + b"-" * at)
    return attribute(uapi.NFTA_LIST_ELEM, inner)


def message(*elements: bytes) -> memoryview:
    """What behind the headers of a message tells of these elements."""
    where = string(uapi.NFTA_SET_ELEM_LIST_TABLE, "nodeagent") + string(uapi.NFTA_SET_ELEM_LIST_SET, "frontends")
    return memoryview(where + attribute(uapi.NFTA_SET_ELEM_LIST_ELEMENTS, b"".join(elements)))


@pytest.mark.parametrize("form", FORMS)
def test_the_fast_way_reads_the_same(form: ElementForm) -> None:
    elements = [element(form, at) for at in range(1, 9)]
    odd = element(form, 9, expires=True)  # the message with it is read the slow way
    fast, slow = read_elements(form, [message(*elements)]), read_elements(form, [message(*elements, odd)])
    assert len(fast.elements) == 8
    assert len(fast.counters) == (8 if form.counted else 0)
    last = bytes([9] * form.key_length)
    assert fast.elements == {key: value for key, value in slow.elements.items() if key != last}
    assert fast.counters == {key: value for key, value in slow.counters.items() if key != last}
    assert slow.expirations == {last: (2000, 1000)}


@pytest.mark.parametrize("form", FORMS)
def test_an_element_that_comes_twice_is_counted(form: ElementForm) -> None:
    twice = [element(form, at) for at in (1, 2, 1)]
    assert read_elements(form, [message(*twice)]).duplicates == 1
    assert read_elements(form, [message(*twice[:2]), message(twice[2])]).duplicates == 1


def test_counters_come_with_comments() -> None:
    elements = [element(FRONTENDS, at) for at in (1, 3)]
    first, second = bytes([1] * 12), bytes([3] * 12)
    head, both = named_set("nodeagent", "frontends"), {first: (1, 60), second: (3, 180)}
    assert read_counters(FRONTENDS, head, [message(*elements)]) == both
    assert read_counters(FRONTENDS, head, [message(one) for one in elements]) == both
    assert read_counts(FRONTENDS, message(*elements)) == {first: (1, b"shop/web-"), second: (3, b"")}


@pytest.mark.parametrize("form", FORMS[:2])
def test_answers_side_by_side_are_read_like_a_list(form: ElementForm) -> None:
    shape = AnswerShape(form, "nodeagent", "frontends")
    elements = [element(form, at) for at in range(1, 9)]
    answers = memoryview(b"".join(bytes(shape.start) + each[4:] for each in elements))
    assert len(answers) == 8 * shape.size
    assert shape.read(answers) == read_elements(form, [message(*elements)])


def test_answers_for_the_keys_that_were_asked_for_are_values() -> None:
    shape = AnswerShape(ENDPOINTS, "nodeagent", "backends")
    answers = [bytes(shape.start) + element(ENDPOINTS, at)[4:] for at in (1, 2)]
    both, keys = memoryview(b"".join(answers)), [bytes([at] * 16) for at in (1, 2)]
    assert shape.values(both, keys) == [bytes([at + 100] * 8) for at in (1, 2)]
    assert shape.values(both, keys[::-1]) is None
    assert shape.values(both, keys[:1]) is None
    other = bytearray(both)
    other[shape.start] ^= 1
    assert shape.values(memoryview(other), keys) is None


def test_values_with_counters_are_left_to_the_other_way() -> None:
    shape = AnswerShape(COUNTED_ENDPOINTS, "nodeagent", "backends")
    answer = bytes(shape.start) + element(COUNTED_ENDPOINTS, 1)[4:]
    assert shape.values(memoryview(answer), [bytes([1] * 16)]) is None


@pytest.mark.parametrize("form", FORMS[:2])
def test_no_other_head_is_taken_for_an_element(form: ElementForm) -> None:
    shape = AnswerShape(form, "nodeagent", "frontends")
    found = element(form, 1)[4:]
    bits = [bytes(len(found[:at])) + b"\xff" + bytes(len(found) - at - 1) for at in range(len(found))]
    refused = 0
    for mask in bits:
        other = bytes(shape.start) + bytes(one ^ flip for one, flip in zip(found, mask, strict=True))
        refused += shape.read(memoryview(other)) is None
    counts = 16 if form.counted else 0
    assert refused == len(found) - form.key_length - form.value_length - counts


@pytest.mark.parametrize("form", FORMS)
def test_a_single_element_is_read_like_a_list(form: ElementForm) -> None:
    """Whatever it has besides the counter, if it has one, and if the message is not of the set that was asked for."""
    head = named_set("nodeagent", "frontends")
    for one in (element(form, 1), element(form, 3), element(form, 2, expires=True)):
        found = message(one)
        slowly = read_elements(form, [found]).counters
        assert read_counters(form, head, [found]) == slowly
        assert read_counters(form, head, [bytes(found)]) == slowly
        assert read_counters(form, named_set("nodeagent", "nodeports"), [found]) == slowly
        assert not read_counters(form, head, [found[: len(head)]])
