"""Which networks of this machine a service range must keep away from."""

from pathlib import Path

import pytest

from nodeagent.apiserver.addresses.host_networks import connected_networks

ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0100000A	0003	0	0	0	00000000	0	0	0
eth0	0000000A	00000000	0001	0	0	0	00FFFFFF	0	0	0
eth1	0000F40A	0100000A	0003	0	0	0	00FFFFFF	0	0	0
"""
ADDRESSES = """\
00000000000000000000000000000001 01 80 10 80       lo
fd005600000000000000000000000010 03 40 00 80     eth1
fe80000000000000505400fffe123456 03 40 20 80     eth1
fd000010009600000000000000000080 04 80 00 80 nodeagent0
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "route").write_text(ROUTES)
    (tmp_path / "if_inet6").write_text(ADDRESSES)
    return tmp_path


def test_networks_are_those_on_a_link(proc: Path) -> None:
    """Neither the default route nor one with a gateway, nor link-local addresses; and not the services of the agent on this
    machine, or the server could not be started again."""
    assert connected_networks(proc) == ["10.0.0.0/24", "fd00:5600::/64"]


def test_without_files_there_are_no_networks(tmp_path: Path) -> None:
    assert connected_networks(tmp_path) == []
