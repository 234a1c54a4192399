"""Pods and the node are served, nobody else."""

from ipaddress import ip_network

import pytest

from nodeagent.names.served_clients import is_allowed

PODS = [ip_network("10.244.0.0/16"), ip_network("fd00:10:244::/56")]
NODE = {"192.0.2.1", "2001:db8::1", "fe80::1"}


@pytest.mark.parametrize(
    ("client", "allowed"),
    [
        ("10.244.3.4", True),
        ("10.245.0.1", False),
        ("fd00:10:244:7::1", True),
        ("fd00:10:245::1", False),
        ("192.0.2.1", True),
        ("192.0.2.2", False),
        ("2001:db8::1", True),
        ("2001:DB8:0::1", True),
        ("2001:db8::2", False),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:10.244.3.4", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:198.51.100.1", False),
        ("fe80::1%eth0", True),
        ("fe80::2%eth0", False),
        ("0.0.0.0", False),
        ("", False),
        ("pod", False),
    ],
)
def test_pods_and_the_node_are_served(client: str, allowed: bool) -> None:
    assert is_allowed(client, PODS, NODE) is allowed


@pytest.mark.parametrize("client", ["198.51.100.1", "10.244.3.4"])
def test_more_ranges_serve_more(client: str) -> None:
    assert is_allowed(client, [*PODS, ip_network("0.0.0.0/0")], NODE)
    assert not is_allowed("2001:db8:9::1", [*PODS, ip_network("0.0.0.0/0")], NODE)


def test_with_nothing_known_only_the_node_itself_is_served() -> None:
    assert is_allowed("127.0.0.1", [], ())
    assert not is_allowed("10.244.3.4", [], ())
