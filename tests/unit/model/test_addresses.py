"""Addresses in objects: texts of any length; too long ones are refused and not remembered."""

import tracemalloc

import pytest

from nodeagent.model.addresses import parse_address, parse_network


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("010.0.000000000000.1", "10.0.0.1"),
        (".".join(["000000000000010"] * 4), "10.10.10.10"),
        (" 2001:0db8:0000:0000:0000:0000:0000:0001 ", "2001:db8::1"),
        ("0000:0000:0000:0000:0000:ffff:255.255.255.255", "255.255.255.255"),
        ("1" * 65, None),
    ],
)
def test_an_address_may_have_zeros_in_front(text: str, address: str | None) -> None:
    assert parse_address(text) == address


def test_a_network_may_have_zeros_in_front() -> None:
    assert str(parse_network(".".join(["000000000000010"] * 4) + "/0000000000008")) == "10.0.0.0/8"
    assert parse_network("10.0.0.0/" + "8" * 5000) is None


@pytest.mark.parametrize("parse", [parse_address, parse_network])
def test_long_texts_are_not_remembered(parse: object) -> None:
    """A server may send each address as a megabyte of something else, again and again."""
    assert callable(parse)
    tracemalloc.start()
    try:
        for number in range(40):
            assert parse(f"{number}." + "x" * 500_000 + "/8") is None
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
