"""Whom the agent connects to, as the configuration has it."""

import pytest

from nodeagent.dataplane.surroundings import Way
from nodeagent.kube.credentials import FixedCredential
from nodeagent.kube.kubeconfig import ClusterAccess
from nodeagent.kube.tls import TlsTrust
from nodeagent.part_options import ways


@pytest.mark.parametrize(
    ("server", "proxy", "expected"),
    [
        pytest.param("https://192.0.2.1:6443", None, (Way("192.0.2.1", 6443),), id="address"),
        pytest.param("https://[2001:db8::1]", None, (Way("2001:db8::1", 443),), id="IPv6 and no port"),
        pytest.param("http://api/prefix", None, (Way("api", 80),), id="name and path"),
        pytest.param(
            "https://api:6443",
            "http://user:secret@proxy:3128",
            (Way("api", 6443), Way("proxy", 3128, is_server=False)),
            id="through a proxy",
        ),
    ],
)
def test_the_ways_are_the_server_and_the_proxy(server: str, proxy: str | None, expected: tuple[Way, ...]) -> None:
    assert ways(ClusterAccess(server, TlsTrust(), FixedCredential(), proxy)) == expected


def test_manifests_need_no_way() -> None:
    assert ways(None) == ()
