"""Whom the agent connects to, as the configuration has it."""

import asyncio
from pathlib import Path

import pytest

from nodeagent.config.agent_config import AgentConfig
from nodeagent.daemon.part_options import cluster_access, named_hosts, reached_by_own_service, ways
from nodeagent.proxy.dataplane.nearby_addresses import OutboundEndpoint
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.server_choice import Server
from nodeagent.proxy.source.client.tls import TlsTrust

KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://elsewhere:6443"}}]
users: [{name: u, user: {token: secret}}]
"""


@pytest.mark.parametrize(
    ("server", "proxy", "expected"),
    [
        pytest.param("https://192.0.2.1:6443", None, (OutboundEndpoint("192.0.2.1", 6443),), id="address"),
        pytest.param("https://[2001:db8::1]", None, (OutboundEndpoint("2001:db8::1", 443),), id="IPv6 and no port"),
        pytest.param("http://api/prefix", None, (OutboundEndpoint("api", 80),), id="name and path"),
        pytest.param(
            "https://api:6443",
            "http://user:secret@proxy:3128",
            (OutboundEndpoint("api", 6443), OutboundEndpoint("proxy", 3128, is_server=False)),
            id="through a proxy",
        ),
    ],
)
def test_the_ways_are_the_server_and_the_proxy(
    server: str, proxy: str | None, expected: tuple[OutboundEndpoint, ...]
) -> None:
    assert ways(ClusterAccess(server, TlsTrust(), FixedCredential(), proxy)) == expected


def test_manifests_need_no_way() -> None:
    assert ways(None) == ()


def test_every_server_and_its_proxy_is_a_way() -> None:
    others = (
        Server("https://192.0.2.2:6443", "http://proxy:3128"),
        Server("https://[2001:db8::3]", "http://proxy:3128"),
    )
    assert ways(ClusterAccess("https://192.0.2.1:6443", TlsTrust(), FixedCredential(), None, others)) == (
        OutboundEndpoint("192.0.2.1", 6443),
        OutboundEndpoint("192.0.2.2", 6443),
        OutboundEndpoint("proxy", 3128, is_server=False),
        OutboundEndpoint("2001:db8::3", 443),
    )


@pytest.mark.parametrize("with_kubeconfig", [False, True])
def test_several_servers_of_one_configuration(tmp_path: Path, with_kubeconfig: bool) -> None:
    """Each has a proxy of its own, or none; all of them are kept clear of."""
    urls = ("https://192.0.2.1:6443", "https://api.test", "https://[2001:db8::1]:6443")
    source: dict[str, object] = {"master": ",".join(urls)}
    token = None
    if with_kubeconfig:
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG)
        source["kubeconfig"] = str(file)
        token = "Bearer secret"
    config = AgentConfig.model_validate({"source": source, "node": {"name": "n"}})
    access = cluster_access(config, {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "192.0.2.0/24"})
    assert access.servers == (
        Server(urls[0]),
        Server(urls[1], "http://proxy:3128"),
        Server(urls[2], "http://proxy:3128"),
    )
    assert named_hosts(config, access) == ("192.0.2.1", "api.test", "2001:db8::1")
    assert asyncio.run(access.credentials.current()).authorization == token


@pytest.mark.parametrize(
    ("server", "is_own"),
    [("https://10.96.0.1:443", True), ("https://192.0.2.1:6443", False), ("https://[fd00::1]:443", False)],
)
def test_the_clusterip_of_the_api_server_itself_is_noticed(server: str, is_own: bool) -> None:
    access = ClusterAccess(server, TlsTrust(), FixedCredential())
    said = reached_by_own_service(access, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert said.startswith("10.96.0.1 is the ClusterIP of the Service kubernetes") is is_own
    assert not reached_by_own_service(access, {})
