"""Which interface the agent takes for its own: never one that somebody else made, always one that it made itself."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.proxy.dataplane.interface import ForeignInterfaceError, ServiceInterface

pytestmark = pytest.mark.kernel

T = TypeVar("T")
PATIENCE = 60.0
VIPS = frozenset({"10.96.0.1", "10.96.0.2", "fd00:96::1"})
AS_AN_EARLIER_VERSION_DID = """
    ip addr add 10.96.0.1/32 dev {name} scope host
    ip addr add fd00:96::1/128 dev {name} nodad noprefixroute preferred_lft 0
    ip route append local 10.96.0.9 dev {name} table local proto static
"""


NO_LATE_ADDRESSES = "echo 1 >/proc/sys/net/ipv6/conf/default/addr_gen_mode;"
"""New links get no link-local address, which the kernel would add and find free in its own time."""


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


def sync(namespace: Namespace, name: str) -> None:
    namespace.run(lambda: asyncio.run(ServiceInterface(name).sync(VIPS)))


def remove(namespace: Namespace, name: str) -> None:
    namespace.run(lambda: asyncio.run(ServiceInterface(name).remove()))


def held(namespace: Namespace, name: str) -> frozenset[str]:
    return namespace.run(lambda: asyncio.run(ServiceInterface(name).read()))


def everything_about(namespace: Namespace, name: str) -> str:
    return namespace.shell(f"ip link show dev {name}; ip -o addr show dev {name}; ip route show table all dev {name}")


def settled(namespace: Namespace, name: str) -> str:
    """The same, once each IPv6 address has its local route: the kernel adds that in its own time (addrconf_dad_work)."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = everything_about(namespace, name)
        if all(f"local {address} " in found for address in re.findall(r"inet6 (\S+)/", found)):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


FOREIGN = [
    pytest.param(
        "cni0",
        "ip link add cni0 type bridge; ip link set cni0 up; ip addr add 10.244.0.1/24 dev cni0;"
        "ip -6 addr add fd00:244::1/64 dev cni0 nodad;"
        "ip link add pod type veth peer name pod-end; ip link set pod master cni0",
        "has the ports pod",
        id="a bridge with a port and addresses",
    ),
    pytest.param(
        "cni0",
        "ip link add cni0 type bridge; ip link set cni0 up; ip addr add 10.244.0.1/24 dev cni0",
        "holds 10.244.0.1/24",
        id="a bridge with an address",
    ),
    pytest.param(
        "cni0",
        "ip link add cni0 type bridge; ip -6 addr add fd00:244::1/64 dev cni0 nodad",
        "holds fd00:244::1/64",
        id="a bridge with an IPv6 address",
    ),
    pytest.param(
        "kube-ipvs0",
        "ip link add kube-ipvs0 type bridge; ip addr add 10.96.0.1/32 dev kube-ipvs0;"
        "ip -6 addr add fd00:96::1/128 dev kube-ipvs0 nodad",
        "holds 10.96.0.1/32, fd00:96::1/128",
        id="another proxy's ClusterIPs",
    ),
    pytest.param(
        "br0", "ip link add br0 type bridge", "carries neither the alias 'nodeagent' nor ClusterIPs", id="an empty one"
    ),
    pytest.param(
        "br0", "ip link add br0 type bridge; ip link set br0 alias mine", "carries neither", id="another's alias"
    ),
    pytest.param(
        "nodeagent0",
        "ip link add nodeagent0 type bridge; ip addr add 192.0.2.1/24 dev nodeagent0",
        "holds 192.0.2.1/24",
        id="our name, another's address",
    ),
    pytest.param(
        "nodeagent0",
        "ip link add nodeagent0 type bridge; ip link add pod type veth peer name pod-end;"
        "ip link set pod master nodeagent0",
        "has the ports pod",
        id="our name, another's port",
    ),
    pytest.param("wire", "ip link add wire type veth peer name end", "is of kind veth", id="a veth"),
]


@pytest.mark.parametrize(("name", "made", "reason"), FOREIGN)
@pytest.mark.parametrize("act", [sync, remove])
def test_an_interface_without_our_mark_is_refused_and_left_alone(
    namespace: Namespace, act: Callable[[Namespace, str], None], name: str, made: str, reason: str
) -> None:
    namespace.shell(NO_LATE_ADDRESSES + made)
    before = settled(namespace, name)

    with pytest.raises(ForeignInterfaceError, match=reason) as refused:
        act(namespace, name)

    assert f"interface {name} is not the agent's and is left alone: it " in str(refused.value)
    assert everything_about(namespace, name) == before


@pytest.mark.parametrize("name", ["nodeagent0", "vips"])
def test_an_interface_of_the_agent_is_marked_and_adopted_again(namespace: Namespace, name: str) -> None:
    sync(namespace, name)
    assert "alias nodeagent" in namespace.shell(f"ip link show dev {name}")
    namespace.shell(f"ip addr flush dev {name}; ip addr add 192.0.2.1/24 dev {name}")

    sync(namespace, name)

    assert held(namespace, name) == VIPS
    assert "192.0.2.1" not in namespace.shell(f"ip addr show dev {name}")
    remove(namespace, name)
    assert name not in namespace.shell("ip -o link show")


def test_a_marked_bridge_that_somebody_gave_a_port_is_left_alone(namespace: Namespace) -> None:
    """As the agent makes one where the kernel has no dummy; a dummy takes no ports."""
    namespace.shell("ip link add nodeagent0 type bridge; ip link set nodeagent0 alias nodeagent")
    sync(namespace, "nodeagent0")
    namespace.shell("ip link add pod type veth peer name pod-end; ip link set pod master nodeagent0")

    with pytest.raises(ForeignInterfaceError, match="has the ports pod"):
        remove(namespace, "nodeagent0")


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        pytest.param("nodeagent0", "", id="named as ours and empty"),
        pytest.param("nodeagent0", "ip link set {name} up", id="with the kernel's link-local address"),
        pytest.param("nodeagent0", AS_AN_EARLIER_VERSION_DID, id="named as ours, with ClusterIPs"),
        pytest.param("vips", AS_AN_EARLIER_VERSION_DID, id="of another name, with ClusterIPs"),
    ],
)
def test_an_interface_of_an_earlier_version_is_adopted_and_marked(
    namespace: Namespace, name: str, contents: str
) -> None:
    namespace.shell(f"ip link add {name} type bridge;" + contents.format(name=name))
    index = namespace.shell(f"ip -o link show dev {name}").split(":")[0]

    sync(namespace, name)

    assert held(namespace, name) == VIPS
    shown = namespace.shell(f"ip link show dev {name}")
    assert "alias nodeagent" in shown
    assert shown.startswith(f"{index}:"), "the same interface"


def test_cleanup_refuses_it_in_one_line_and_leaves_the_rest_too(namespace: Namespace) -> None:
    namespace.shell(
        "ip link add cni0 type bridge; ip addr add 10.244.0.1/24 dev cni0; nft add table ip nodeagent;"
        "ip link add pod type veth peer name pod-end; ip link set pod master cni0"
    )
    argv = [sys.executable, "-m", "nodeagent", "cleanup", "--interface", "cni0"]

    done = namespace.run(lambda: subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60))

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "interface cni0 is not the agent's and is left alone: it has the ports pod" in done.stderr
    assert "10.244.0.1/24" in namespace.shell("ip addr show dev cni0")
    assert "nodeagent" in namespace.shell("nft list tables"), "the interface is the first to go, or nothing is"
