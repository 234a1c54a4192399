"""Kernel settings against a real kernel, each test in a network namespace of its own."""

import socket
import struct
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.sysctl import ConntrackOptions, SysctlOutcome, apply_sysctls, required_sysctls

pytestmark = pytest.mark.kernel

T = TypeVar("T")


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


def send_router_advertisement(interface: str) -> None:
    """RFC 4861 section 4.2: hop limit 64, router lifetime 1800 s, no options."""
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        index = socket.if_nametoindex(interface)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        raw.sendto(struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0), ("ff02::1", 0, 0, index))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def test_forwarding_is_turned_on_once(namespace: Namespace) -> None:
    namespace.shell("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")

    first = namespace.run(lambda: apply_sysctls(required_sysctls(list(Family))))
    second = namespace.run(lambda: apply_sysctls(required_sysctls(list(Family))))

    assert {result.outcome for result in first} == {SysctlOutcome.WRITTEN}
    assert {result.outcome for result in second} == {SysctlOutcome.UNCHANGED}
    assert namespace.shell("sysctl -n net.ipv4.ip_forward net.ipv6.conf.all.forwarding").split() == ["1", "1"]


@pytest.mark.parametrize("guarded", [pytest.param(True, id="by us"), pytest.param(False, id="by plain sysctl")])
def test_a_default_route_learned_from_a_router_survives_turning_forwarding_on(
    namespace: Namespace, guarded: bool
) -> None:
    """The second case shows the hazard: the kernel itself takes the route away."""
    namespace.shell("sysctl -qw net.ipv6.conf.all.forwarding=0; ip link add uplink type veth peer name router")
    namespace.shell("ip link set uplink up; ip link set router up")
    wait_until(lambda: "tentative" not in namespace.shell("ip -6 addr show dev router scope link"))

    def learned() -> bool:
        if "default" in namespace.shell("ip -6 route show dev uplink"):
            return True
        namespace.run(lambda: send_router_advertisement("router"))
        return False

    wait_until(learned)
    if guarded:
        namespace.run(lambda: apply_sysctls(required_sysctls([Family.IPV6])))
    else:
        namespace.shell("sysctl -qw net.ipv6.conf.all.forwarding=1")

    assert ("default" in namespace.shell("ip -6 route show dev uplink")) is guarded


def test_timeouts_are_set_in_the_namespace(namespace: Namespace) -> None:
    namespace.shell(
        "nft 'add table ip t; add chain ip t c { type filter hook input priority 0; }; add rule ip t c ct state new'"
    )
    settings = ConntrackOptions(max_per_core=0, tcp_established_seconds=4321, tcp_close_wait_seconds=99)

    results = namespace.run(lambda: apply_sysctls(required_sysctls([], conntrack=settings)))

    assert [result.problem for result in results] == [None, None]
    path = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_"
    assert namespace.shell(f"cat {path}established {path}close_wait").split() == ["4321", "99"]


def test_a_sysctl_that_only_the_host_may_set_is_one_line_with_the_command(namespace: Namespace) -> None:
    """nf_conntrack_max is read-only outside the first network namespace (net/netfilter/nf_conntrack_standalone.c)."""
    settings = ConntrackOptions(max_per_core=1 << 20)
    only_max = [s for s in required_sysctls([], conntrack=settings) if s.name.endswith("nf_conntrack_max")]

    [result] = namespace.run(lambda: apply_sysctls(only_max))

    assert result.outcome is SysctlOutcome.FAILED
    assert result.problem is not None
    assert "sysctl -w net.netfilter.nf_conntrack_max=1048576" in result.problem.detail
