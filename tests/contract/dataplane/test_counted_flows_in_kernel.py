"""The flows to the addresses of a Service, counted in the kernel's connection table."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.addresses import Protocol as Transport
from nodeagent.model.frontend import Frontend, FrontendKind, Route
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane import conntrack_flows, conntrack_list

pytestmark = pytest.mark.kernel

T = TypeVar("T")
VIP, VIP6, OTHER6 = "10.96.0.1", "fd00:96::1", "fd00:96::2"


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


@pytest.mark.parametrize(
    ("few", "together"),
    [
        pytest.param(conntrack_list.FEW_FLOWS, False, id="from the list"),
        pytest.param(0, True, id="one walk"),
        pytest.param(0, False, id="a walk for each address"),
    ],
)
def test_the_flows_to_each_address_of_a_service_are_counted_once(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, few: int, together: bool
) -> None:
    monkeypatch.setattr(conntrack_list, "FEW_FLOWS", few)
    monkeypatch.setattr(conntrack_flows, "is_one_walk_faster", lambda _: together)
    name = ServicePortName(ObjectKey("kube-system", "dns"), "dns", Transport.UDP)
    frontends = [
        Frontend(FrontendKind.CLUSTER_IP, family_of(address), address, protocol, 53, name, Route(()))
        for address in (VIP6, OTHER6, VIP)
        for protocol in (Transport.UDP, Transport.TCP)
    ]

    def count(family: Family) -> dict[str, int]:
        own = [one for one in frontends if one.family is family]
        return dict(namespace.run(lambda: conntrack_flows.tracked_flows(family, own)))

    assert [count(family) for family in Family] == [{}, {}]
    for number, (place, protocol) in enumerate(
        [(VIP6, "udp"), (OTHER6, "udp"), (OTHER6, "tcp --state ESTABLISHED"), ("fd00:96::3", "udp"), (VIP, "udp")]
    ):
        client, pod = ("fd00::1", "fd00:244::5") if ":" in place else ("10.0.0.1", "10.244.0.5")
        namespace.shell(
            f"conntrack -I -p {protocol} -s {client} -d {place} --sport {number + 1} --dport 53 -r {pod} -q {client}"
            f" --reply-port-src 5353 --reply-port-dst {number + 1} -t 100"
        )
    assert count(Family.IPV6) == {"[fd00:244::5]:5353": 3}
    assert count(Family.IPV4) == {"10.244.0.5:5353": 1}
