"""Programs of tc and XDP on a packet's way: they are named with their interface, and a trace does not say that it knows better."""

import ctypes
import json
import os
import platform
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import family_of
from nodeagent.wire import bpf
from nodeagent.wire.netlink.framing import Request, attribute, nested
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi import rtnetlink as uapi
from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import AGENT
from tests.netns.trace.planting import (
    DROP,
    FAR,
    PASS,
    WEB,
    WEB6,
    by_shell,
    first_line,
    first_line_of_strangers,
    tc_filter,
    works,
    works_again,
)

pytestmark = pytest.mark.kernel

XDP_DROP = 1
BPF_PROG_LOAD, BPF_PROG_ATTACH, BPF_PROG_DETACH = 5, 8, 9
BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP = 3, 6
SYS_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
IFLA_XDP_FD, IFLA_XDP_FLAGS, XDP_FLAGS_SKB_MODE = 1, 3, 2
ADDRESSES = pytest.mark.parametrize("address", [WEB, WEB6], ids=["IPv4", "IPv6"])


@contextmanager
def express_program(cluster: Cluster, interface: str) -> Iterator[None]:
    """An XDP program that drops all that comes in."""
    namespace = cluster.world.namespace(NODE)
    program = load(XDP_DROP)
    try:
        inside(namespace, lambda: set_express(interface, program))
        yield
    finally:
        inside(namespace, lambda: set_express(interface, -1))
        os.close(program)


@contextmanager
def tcx_program(cluster: Cluster, interface: str, kind: int, answer: int) -> Iterator[None]:
    """A program at tcx that gives everything this answer."""
    namespace = cluster.world.namespace(NODE)
    program = load(answer, BPF_PROG_TYPE_SCHED_CLS)

    def change(command: int) -> None:
        call_bpf(command, struct.pack("=IIII", socket.if_nametoindex(interface), program, kind, 0))

    inside(namespace, lambda: change(BPF_PROG_ATTACH))
    try:
        yield
    finally:
        inside(namespace, lambda: change(BPF_PROG_DETACH))
        os.close(program)


def call_bpf(command: int, attribute: bytes) -> int:
    attributes = ctypes.create_string_buffer(attribute, 128)
    found: int = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF, command, attributes, len(attributes))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def load(answer: int, kind: int = BPF_PROG_TYPE_XDP) -> int:
    """The descriptor of a program that gives this answer (bpf(2))."""
    words = struct.pack("=BBhi", 0xB7, 0, 0, answer) + struct.pack("=BBhi", 0x95, 0, 0, 0)  # r0 = answer; exit
    code = ctypes.create_string_buffer(words)
    licence = ctypes.create_string_buffer(b"GPL")
    asked = struct.pack(
        "=IIQQIIQII16s",
        kind,
        2,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        0,
        0,
        0,
        0,
        0,
        b"planted",
    )
    return call_bpf(BPF_PROG_LOAD, asked)


def set_express(interface: str, program: int) -> None:
    index = socket.if_nametoindex(interface)
    express = nested(
        uapi.IFLA_XDP,
        attribute(IFLA_XDP_FD, struct.pack("=i", program)),
        attribute(IFLA_XDP_FLAGS, struct.pack("=I", XDP_FLAGS_SKB_MODE)),
    )
    body = struct.pack("=BxHiII", 0, 0, index, 0, 0) + express
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        assert netlink.perform([Request(uapi.RTM_NEWLINK, 0, body)]) == []


def note_of_check(cluster: Cluster, check: str = "tc and XDP") -> str:
    done = cluster.world.run(NODE, [*AGENT, "check", "-o", "json"], check=False)
    return next((one["detail"] for one in json.loads(done.stdout)["checks"] if one["check"] == check), "")


@ADDRESSES
@pytest.mark.parametrize(
    ("interface", "direction"), [("caller", "ingress"), ("web-0", "egress"), ("web-0", "ingress"), ("caller", "egress")]
)
def test_a_filter_that_drops_is_named(node: Cluster, address: str, interface: str, direction: str) -> None:
    """Of the request, and of its answer."""
    world = node.world
    assert works_again(world, "caller", address, "tcp")
    with tc_filter(interface, direction, DROP)(node):
        assert not works(world, "caller", address, "tcp", read_with_retries=False)
        said, code = first_line(world, "caller", address, "tcp")
        assert (code, said.startswith("arrives: ")) == (0, True), said
        assert f"; as far as is known: the tc filter bpf at {interface} ({direction}) may drop or change it" in said
        assert f"the tc filter bpf at {interface} ({direction})" in note_of_check(node)
    assert works_again(world, "caller", address, "tcp")
    said, _ = first_line(world, "caller", address, "tcp")
    assert "tc filter" not in said
    assert note_of_check(node) == ""


def test_a_filter_elsewhere_is_not_on_the_way(node: Cluster) -> None:
    world = node.world
    with tc_filter("web-1", "egress", DROP)(node):
        assert works_again(world, "caller", WEB, "tcp")
        assert "tc filter" not in first_line(world, "caller", WEB, "tcp")[0]
        assert "web-1 (egress)" in note_of_check(node)


def test_a_filter_that_lets_all_pass_is_named_too(node: Cluster) -> None:
    """What it does is not known; only that it is there."""
    world = node.world
    with tc_filter("web-0", "egress", PASS)(node):
        assert works_again(world, "caller", WEB, "tcp")
        assert "the tc filter bpf at web-0 (egress) may" in first_line(world, "caller", WEB, "tcp")[0]


@ADDRESSES
@pytest.mark.parametrize("interface", ["caller", "web-0"])
def test_an_express_program_is_named(node: Cluster, address: str, interface: str) -> None:
    world = node.world
    assert works_again(world, "caller", address, "tcp")
    with express_program(node, interface):
        assert not works(world, "caller", address, "tcp", read_with_retries=False)
        said, _ = first_line(world, "caller", address, "tcp")
        assert "as far as is known: the XDP program " in said
        assert f" at {interface} may drop or change it: not followed: see ip -d link show dev {interface}" in said
    assert works_again(world, "caller", address, "tcp")
    assert "XDP" not in first_line(world, "caller", address, "tcp")[0]


@ADDRESSES
@pytest.mark.parametrize(
    ("interface", "direction", "kind"),
    [
        ("caller", "ingress", bpf.TCX_INGRESS),
        ("web-0", "egress", bpf.TCX_EGRESS),
        ("web-0", "ingress", bpf.TCX_INGRESS),
    ],
)
def test_a_program_at_tcx_is_named(node: Cluster, address: str, interface: str, direction: str, kind: int) -> None:
    """Netlink does not show it."""
    world = node.world
    assert works_again(world, "caller", address, "tcp")
    with tcx_program(node, interface, kind, DROP):
        assert not works(world, "caller", address, "tcp", read_with_retries=False)
        said, _ = first_line(world, "caller", address, "tcp")
        assert "as far as is known: the tcx program " in said
        assert (
            f" at {interface} ({direction}) may drop or change it: not followed: see bpftool net show dev {interface}"
            in said
        )
        assert f" at {interface} ({direction})" in note_of_check(node)
    assert works_again(world, "caller", address, "tcp")
    assert "tcx" not in first_line(world, "caller", address, "tcp")[0]
    assert note_of_check(node) == ""


@ADDRESSES
@pytest.mark.parametrize(("interface", "direction"), [("caller", "ingress"), ("web-0", "egress")])
def test_a_program_at_a_port_that_the_bridge_has_not_learned(
    node: Cluster, address: str, interface: str, direction: str
) -> None:
    """The node forgets the host, and a program that drops everything keeps it from finding it again."""
    world = node.world
    kind = {"ingress": bpf.TCX_INGRESS, "egress": bpf.TCX_EGRESS}[direction]
    with tcx_program(node, interface, kind, DROP):
        host = world[interface].address(family_of(address))

        def holds(line: str) -> bool:
            return host in line.rpartition("; the bridge cni0 has not learned the port of ")[2].split(", ")

        said, _ = first_line_of_strangers(world, "caller", address, "tcp", holds)
        assert f"({direction}) may drop or change it: not followed: see bpftool net show dev {interface}" in said
        assert holds(said), said
    assert works_again(world, "caller", address, "tcp")
    assert "tcx" not in first_line(world, "caller", address, "tcp")[0]


def test_a_program_at_the_interface_below_is_on_the_way(node: Cluster) -> None:
    """Of a macvlan. The control: the way to another pod does not lead over it."""
    far = node.world["far-0"].address()
    above = "ip link add link eth0 name above type macvlan mode bridge; ip link set above up; "
    with (
        by_shell(f"{above} ip route add {far} via 192.168.0.77 dev above onlink", "ip link del above")(node),
        tc_filter("eth0", "egress", PASS)(node),
    ):
        assert "the tc filter bpf at eth0 (egress)" in first_line(node.world, "caller", FAR, "tcp")[0]
        assert "eth0" not in first_line(node.world, "caller", WEB, "tcp")[0]


def test_policies_of_ipsec_are_counted(node: Cluster) -> None:
    """What a trace says of them is in test_more_faults.py."""
    block = "ip xfrm policy add dir out src 10.244.1.200 dst 10.244.1.10 action block"
    with by_shell(block, "ip xfrm policy flush")(node):
        assert note_of_check(node, "IPsec").startswith("packets meet a policy, not followed; 1 of 1 block")
    assert note_of_check(node, "IPsec") == ""
