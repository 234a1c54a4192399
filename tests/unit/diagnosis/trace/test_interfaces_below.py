"""Which interfaces a packet passes below that of its route."""

import pytest

from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.wire.netlink.rtnetlink import Link


def link(index: int, name: str, kind: str = "", *, master: int = 0, below: int = 0) -> Link:
    return Link(index, name, kind, True, True, True, "", master, below=below)


LINKS = (
    link(1, "eth0", master=3),
    link(2, "eth1", master=3),
    link(3, "bond0", "bond"),
    link(4, "bond0.5", "vlan", below=3),
    link(5, "pod", "veth", below=6),
    link(6, "peer", "veth", below=5),
    link(7, "eth2"),
)


@pytest.mark.parametrize(
    ("interface", "passed"),
    [
        ("eth2", {"eth2"}),
        ("bond0", {"bond0", "eth0", "eth1"}),
        ("bond0.5", {"bond0.5", "bond0", "eth0", "eth1"}),
        ("pod", {"pod"}),
        ("gone", {"gone"}),
    ],
)
def test_interfaces_below(monkeypatch: pytest.MonkeyPatch, interface: str, passed: set[str]) -> None:
    monkeypatch.setattr(KernelRoutes, "_all_links", lambda _: {one.name: one for one in LINKS})
    with KernelRoutes() as routes:
        assert set(routes.ends_at(interface, "10.244.1.7")) == passed
