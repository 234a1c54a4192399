"""Addresses in objects: the texts that `ipaddress` takes, without zones and without IPv4 written as IPv6."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.kinds.description.address_texts import parse_cidr, parse_ip

PARTS = st.sampled_from(
    ["0", "1", "9", "10", "255", "256", "00", "01", "099", "-1", " 1", "1e1", "0x1", "٣", "", "1\0"]
)


def of_the_library(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except ValueError:
        return None


@given(parts=st.lists(PARTS, min_size=3, max_size=5))
def test_the_same_texts_are_ipv4_addresses_as_for_the_library(parts: list[str]) -> None:
    text = ".".join(parts)
    assert parse_ip(text) == of_the_library(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param("192.0.2.1", IPv4Address("192.0.2.1"), id="IPv4"),
        pytest.param("2001:db8:0::1", IPv6Address("2001:db8::1"), id="IPv6"),
        pytest.param("fe80::1%eth0", None, id="a zone"),
        pytest.param("::ffff:192.0.2.1", None, id="IPv4 written as IPv6"),
        pytest.param("192.0.2.1\n", None, id="a newline after it"),
        pytest.param("\ud800", None, id="no character"),
        pytest.param("", None, id="nothing"),
        pytest.param(f"{'0' * 60}::1", None, id="too long"),
    ],
)
def test_an_address_is_read(text: str, address: IPv4Address | IPv6Address | None) -> None:
    assert parse_ip(text) == address


def test_the_network_of_an_address_with_host_bits_is_read() -> None:
    assert parse_cidr("192.0.2.9/24") == IPv4Network("192.0.2.0/24")
