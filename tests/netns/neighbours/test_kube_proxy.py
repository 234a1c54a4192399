"""kube-proxy's own rules for a ClusterIP that is ours as well: ours decide, in any order of start.

The way from one to the other, with connections held, is in test_takeover.py.
"""

import pytest

from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import NODE, of_family

from .scene import SHOP, Neighbour, Scene, alone, settings

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
CLIENTS = ("caller", "outside", NODE)
MODES = (
    Neighbour("kube-proxy.nft"),
    Neighbour("kube-proxy.iptables", "iptables-nft"),
)
BESIDE = pytest.mark.parametrize("beside", settings(*MODES), indirect=True, ids=str)


@BESIDE
@PROTOCOLS
@FAMILIES
def test_our_endpoints_answer(beside: Scene, family: Family, protocol: Protocol) -> None:
    """web-2, where kube-proxy's rules lead, is none of them."""
    for client in CLIENTS:
        survey = beside.world[client].ask(of_family(family, SHOP), 443, protocol, count=10)
        assert not survey.failures, client
        assert survey.names.keys() <= {"web-0", "web-1"}, client


@BESIDE
@FAMILIES
def test_pods_keep_their_address(beside: Scene, family: Family) -> None:
    """Nothing of kube-proxy's has marked the connection to be masqueraded."""
    caller = beside.world["caller"]

    assert caller.ask(of_family(family, SHOP), 443, count=5).peers == {caller.address(family)}


@pytest.mark.parametrize("beside", alone(*MODES), indirect=True, ids=str)
@FAMILIES
def test_kube_proxys_rules_work_alone(beside: Scene, family: Family) -> None:
    """The control: without the agent, they lead to web-2."""
    for client in CLIENTS:
        assert beside.world[client].ask(of_family(family, SHOP), 443).names == {"web-2": 1}, client
