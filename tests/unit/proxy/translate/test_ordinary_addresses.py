"""Ordinary addresses are those that parsing would leave as they are, and that have no special use."""

from itertools import product

import pytest

from nodeagent.model.addresses import parse_address
from nodeagent.proxy.translate.exposed_addresses import special_use
from nodeagent.proxy.translate.ordinary_addresses import are_ordinary_ipv4, is_ordinary_ipv4

OCTETS = [*map(str, range(300)), "00", "01", "010", "1000", "", " 1", "a", "٣"]
OTHERS = [
    "10",
    "10.0.0",
    "10.0.0.1.2",
    "10.0.0.1.",
    ".10.0.0.1",
    "10.0.0.1\n",
    "10.0.0.1/8",
    "fd00::1",
    "::",
    "::ffff:10.0.0.1",
]


def is_used_as_it_is(text: str) -> bool:
    """All of 0.0.0.0/8 is parsed, too: only one of these addresses has a special use."""
    ordinary = ":" not in text and parse_address(text) == text and special_use(text) is None
    return ordinary and not text.startswith("0.")


@pytest.mark.parametrize("place", range(4))
def test_each_octet_is_a_number_without_leading_zeros(place: int) -> None:
    for octet in OCTETS:
        parts = ["10", "9", "255", "0"]
        parts[place] = octet
        text = ".".join(parts)
        assert bool(is_ordinary_ipv4(text)) == is_used_as_it_is(text), text


def test_special_uses_are_not_ordinary() -> None:
    for first, second in product(range(256), (0, 1, 168, 169, 254, 255)):
        text = f"{first}.{second}.0.1"
        assert bool(is_ordinary_ipv4(text)) == is_used_as_it_is(text), text


@pytest.mark.parametrize("text", OTHERS)
def test_anything_else_is_not_ordinary(text: str) -> None:
    assert not is_ordinary_ipv4(text)


@pytest.mark.parametrize(
    ("text", "ordinary"),
    [
        ("10.0.0.1", True),
        ("10.0.0.1,10.0.0.25,10.0.0.255", True),
        ("10.0.0.1,10.0.0.256", False),
        ("10.0.0.1,127.0.0.1", False),
        ("10.0.0.1,", False),
        (",10.0.0.1", False),
        ("10.0.0.1,,10.0.0.2", False),
        ("10.0.0.1 10.0.0.2", False),
        ("", False),
    ],
)
def test_a_list_is_ordinary_if_each_address_is(text: str, ordinary: bool) -> None:
    assert bool(are_ordinary_ipv4(text)) == ordinary
