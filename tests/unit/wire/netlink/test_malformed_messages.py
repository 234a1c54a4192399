"""Messages that lack what they must say: an OSError of their own, whatever it is that is missing, and no reading on."""

import errno
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.errors import KernelUnclear
from nodeagent.proxy.dataplane.kube_proxy.iptables_nft import parse_rule
from nodeagent.proxy.dataplane.kube_proxy.ipvs_messages import family_number, read_server
from nodeagent.proxy.dataplane.program.schema import AFFINITY, set_specs
from nodeagent.wire.netlink import local_routes, rtnetlink
from nodeagent.wire.netlink.bridges import families_filtered, filters_vlans, read_port, read_vlans, sends_back
from nodeagent.wire.netlink.framing import MalformedMessageError, Received, attribute, nested
from nodeagent.wire.netlink.link_programs import read_express_program, read_filter, read_queueing
from nodeagent.wire.netlink.neighbours import read_state
from nodeagent.wire.netlink.netlink_sockets import read_netlink_socket
from nodeagent.wire.netlink.nf_tables.comparison import set_looked_up
from nodeagent.wire.netlink.nf_tables.element_reading import read_elements, read_pairs
from nodeagent.wire.netlink.nf_tables.elements import ElementForm
from nodeagent.wire.netlink.nf_tables.ruleset_objects import read_chain, read_rule, read_set, table_of
from nodeagent.wire.netlink.socket import errno_of, offset_at_fault
from nodeagent.wire.netlink.uapi.netlink import NLM_F_ACK_TLVS

PAIRS = ElementForm(key_length=4, value_length=4, is_map=True)
RANGES = ElementForm(key_length=4, interval=True)
NO_LENGTH = struct.pack("=HH", 0, 1) + bytes(28)
INTERVAL_END = attribute(3, b"\0\0\0\1")


def elements(*packed: bytes) -> bytes:
    return nested(3, *packed)


@pytest.mark.parametrize(
    ("read", "body"),
    [
        pytest.param(read_netlink_socket, bytes(28), id="a netlink socket's flags"),
        pytest.param(read_netlink_socket, bytes(28) + attribute(6, bytes(4)), id="another attribute of it"),
        pytest.param(rtnetlink.read_link, b"", id="a link"),
        pytest.param(rtnetlink.read_link, bytes(16) + attribute(10, b"\1"), id="a link's master"),
        pytest.param(rtnetlink.read_link, bytes(16) + nested(26, nested(10, attribute(8, b""))), id="a link's mode"),
        pytest.param(rtnetlink.read_address, b"\2", id="an address"),
        pytest.param(rtnetlink.read_address, b"\2" + bytes(7) + attribute(2, b"\x0a\0\0"), id="three bytes of it"),
        pytest.param(rtnetlink.reaches_others, b"", id="how far an address reaches"),
        pytest.param(local_routes.may_be_local_route, b"", id="a route"),
        pytest.param(rtnetlink.gateways_of, b"", id="gateways"),
        pytest.param(read_state, bytes(8), id="a neighbour's state"),
        pytest.param(read_port, bytes(7), id="a port of a bridge"),
        pytest.param(sends_back, bytes(16) + nested(18, nested(5, attribute(4, b""))), id="a port's mode"),
        pytest.param(families_filtered, bytes(16) + nested(18, nested(2, attribute(36, b""))), id="a bridge's filter"),
        pytest.param(filters_vlans, bytes(16) + nested(18, nested(2, attribute(7, b""))), id="whether VLANs matter"),
        pytest.param(read_vlans, bytes(16) + nested(26, attribute(2, b"\0\0")), id="a VLAN"),
        pytest.param(read_queueing, bytes(20), id="a queueing discipline's kind"),
        pytest.param(read_filter, bytes(19), id="a filter"),
        pytest.param(read_express_program, bytes(16) + nested(43, attribute(2, b"")), id="whether XDP is on"),
        pytest.param(table_of, b"", id="a table's name"),
        pytest.param(read_chain, attribute(1, b"t\0"), id="a chain's name"),
        pytest.param(read_rule, nested(4, nested(1)), id="an expression's name"),
        pytest.param(parse_rule, attribute(2, b"c\0") + nested(4, nested(1, attribute(1, b"match\0"))), id="a match"),
        pytest.param(read_set, b"", id="a set's name"),
        pytest.param(
            lambda body: read_elements(PAIRS, [body]), elements(nested(1, nested(2))), id="an element's value"
        ),
        pytest.param(
            lambda body: read_elements(RANGES, [body]),
            elements(nested(1, nested(1)), nested(1, nested(1, attribute(1, b"\0")), INTERVAL_END)),
            id="a range's first key",
        ),
        pytest.param(lambda body: read_pairs(PAIRS, body), elements(NO_LENGTH), id="an element without length"),
        pytest.param(lambda body: read_pairs(PAIRS, body), elements(b"\x20\0"), id="an element that is cut off"),
        pytest.param(family_number, bytes(4), id="a family"),
        pytest.param(read_server, bytes(4) + nested(1, attribute(1, b"\2")), id="a virtual server"),
    ],
)
def test_missing_attributes_are_one_error(read: Callable[[memoryview], object], body: bytes) -> None:
    with pytest.raises(MalformedMessageError) as raised:
        read(memoryview(body))
    assert raised.value.errno == errno.EBADMSG


def test_routes_in_routes_are_not_followed_for_ever() -> None:
    hops = attribute(5, b"\x0a\0\0\1")
    for _ in range(4000):
        hop = struct.pack("=HBBi", 8 + len(hops), 0, 0, 7) + hops
        hops = attribute(9, hop)
    head = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
    assert rtnetlink.gateways_of(memoryview(head + hops)) == ()


def test_a_gateway_that_is_no_ip_address_is_left_out() -> None:
    head = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
    via = attribute(18, struct.pack("=H", socket.AF_PACKET) + b"\2\0\0\0\0\1")
    assert rtnetlink.gateways_of(memoryview(head + via + attribute(5, b"\x0a\0\0\1"))) == (b"\x0a\0\0\1",)


def test_an_unknown_errno_can_be_spelled() -> None:
    answer = Received(2, 0, 1, memoryview(struct.pack("=i", -(2**31))))
    assert errno_of(answer) == errno.EBADMSG


def test_a_code_that_only_a_subsystem_has_stays_what_it_is() -> None:
    """ipset's begin at 4096 (linux/netfilter/ipset/ip_set.h), above what the kernel calls an errno."""
    answer = Received(2, 0, 1, memoryview(struct.pack("=i", -4106)))
    assert errno_of(answer) == 4106


def test_an_invalid_offset_is_not_reported() -> None:
    answer = Received(2, NLM_F_ACK_TLVS, 1, memoryview(bytes(20) + attribute(2, b"\1")))
    assert offset_at_fault(answer) is None


def test_a_lookup_without_a_set_is_in_none() -> None:
    assert set_looked_up(memoryview(b"")) == ""


class Nonsense:
    """A kernel that answers every question about the ruleset with an element that has no value."""

    said = memoryview(elements(nested(1, nested(2))))

    def dump(self, *_: object) -> Iterator[memoryview]:
        return iter([self.said])

    fetch = dump

    def get(self, *_: object) -> memoryview:
        return self.said

    def count_confirmed(self, *_: object, exact: bool) -> int:
        return 0


def test_of_a_table_it_is_what_is_read_back_and_tried_again() -> None:
    table = KernelTable(Nonsense(), Family.IPV4, {spec.name: spec for spec in set_specs(counters=True)})  # type: ignore[arg-type]
    questions: tuple[Callable[[], object], ...] = (
        table.outline,
        table.read,
        table.affinity,
        lambda: list(table.learned_endpoints()),
        lambda: table.elements(AFFINITY),
    )
    for question in questions:
        with pytest.raises(KernelUnclear, match="malformed message"):
            question()
