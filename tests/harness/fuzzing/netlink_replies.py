"""What the kernel answers, for all who read it; allowed is a value or an OSError, which a malformed message is.

The seeds are our own requests: the kernel describes an object with the attributes by which it is made.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from unittest.mock import patch

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.readback import chain_deviation, hook_of, same_set
from nodeagent.proxy.dataplane.kube_proxy.ipset import destroy_request, set_names
from nodeagent.proxy.dataplane.kube_proxy.iptables_nft import parse_chain, parse_rule
from nodeagent.proxy.dataplane.kube_proxy.ipvs_messages import family_number, read_server
from nodeagent.proxy.dataplane.program.chain import Chain, Hook, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.dataplane.program.schema import TABLE, set_specs
from nodeagent.wire.netlink import local_routes, rtnetlink
from nodeagent.wire.netlink.bridges import families_filtered, look_up_port, read_port, sends_back
from nodeagent.wire.netlink.conntrack import create_flow, delete_flow, masquerade_address, read_flows
from nodeagent.wire.netlink.framing import Request, attribute, nested, packed_message, string
from nodeagent.wire.netlink.neighbours import read_hardware_address
from nodeagent.wire.netlink.nf_tables.batch import entry_at
from nodeagent.wire.netlink.nf_tables.element_reading import read_elements, read_pairs
from nodeagent.wire.netlink.nf_tables.elements import pack_elements, pack_expiring, pack_verdicts
from nodeagent.wire.netlink.nf_tables.expressions import OneOf
from nodeagent.wire.netlink.nf_tables.ruleset_objects import (
    ChainHook,
    NewSet,
    pack_chain,
    pack_element_list,
    pack_flowtable,
    pack_rule,
    pack_set,
    pack_table,
    read_chain,
    read_flowtable,
    read_generation,
    read_rule,
    read_set,
    read_table,
    table_of,
)
from nodeagent.wire.netlink.socket import NetlinkSocket, offset_at_fault
from nodeagent.wire.netlink.uapi.netlink import NETLINK_ROUTE, NLM_F_ACK_TLVS, NLMSG_DONE, NLMSG_ERROR
from tests.harness.fuzzing.mutation import Target

FAMILY = Family.IPV4
SPECS = {spec.name: spec for spec in set_specs(counters=True)}
CHAINS = build_program(FAMILY, ProgramOptions(), (), ()).chains
HEADS = [
    struct.pack("=H", 0), struct.pack("=H", 3), struct.pack("=H", 4), struct.pack("=H", 5), struct.pack("=H", 8),
    struct.pack("=HH", 4, 1), struct.pack("=HH", 8, 1) + b"\xff" * 4, struct.pack("=HH", 8, 0x8001), b"\0" * 4, b"\xff" * 4,
    attribute(1, b""), attribute(2, b"\0"), nested(3, attribute(1, b"\xff")), struct.pack("=HH", 12, 9) + b"\x08" + b"\0" * 7,
]  # fmt: skip


def allowed(read: Callable[[], object]) -> None:
    with suppress(OSError):
        read()


def _routes() -> Iterator[bytes]:
    for address in ("10.96.0.1", "fd00::1"):
        yield rtnetlink.add_address(address, 7).body
        yield rtnetlink.add_local_route(address, 7).body
    hop = struct.pack("=HBBi", 16, 0, 0, 7) + attribute(5, b"\x0a\0\0\x01")
    head = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
    yield head + attribute(9, hop + hop) + attribute(18, b"\x0a\0" + b"\xfd" * 16) + attribute(5, b"\x0a\0\0\x02")
    yield rtnetlink.create_link("nodeagent0", "bridge").body + nested(26, nested(10, attribute(8, b"\1")))
    yield bytes(16) + nested(18, nested(2, attribute(36, b"\1")), nested(5, attribute(4, b"\1")))
    yield look_up_port(b"\2\0\0\0\0\1", 7).body
    yield rtnetlink.set_alias(7, "nodeagent").body + attribute(10, struct.pack("=I", 3))


def _check_routes(data: bytes) -> None:
    body = memoryview(data)
    for of_bridges in (families_filtered, sends_back, read_port, read_hardware_address):
        allowed(lambda read=of_bridges: read(body))  # type: ignore[misc]
    for read in (
        rtnetlink.read_link,
        rtnetlink.read_address,
        rtnetlink.reaches_others,
        local_routes.may_be_local_route,
    ):
        allowed(lambda read=read: read(body))  # type: ignore[misc]
    allowed(lambda: local_routes.read_local_route(body, 7))
    for datagram in (body, memoryview(packed_message(24, 2, 1, data) * 2)):
        allowed(lambda datagram=datagram: local_routes.local_routes_in(datagram, 7))  # type: ignore[misc]
    allowed(lambda: [socket.inet_ntop(_family(packed), packed) for packed in rtnetlink.gateways_of(body)])


def _family(packed: bytes) -> int:
    return socket.AF_INET if len(packed) == FAMILY.address_length else socket.AF_INET6


def _flows() -> Iterator[bytes]:
    made = create_flow((b"\x0a\0\0\1", 1000), (b"\x0a\x60\0\1", 53), mark=1, seconds=30)
    one = packed_message(made.type, 2, 1, made.body + attribute(12, b"\1\2\3\4"))
    yield one
    yield packed_message(made.type, 2, 1, _translated().body)
    yield one * 3 + packed_message(made.type, 2, 1, made.body + attribute(18, b"\0\7"))


def _translated() -> Request:
    answer = (b"\x0a\0\0\2", 8080), (b"\xc0\xa8\0\2", 2000)
    return create_flow((b"\x0a\0\0\1", 1000), (b"\x0a\x60\0\1", 53), mark=1, seconds=30, answer=answer)


def _check_flows(data: bytes) -> None:
    for family in Family:
        for flow in read_flows(family, memoryview(data)):
            delete_flow(family, flow)
            masquerade_address(family, flow)


def _ruleset() -> Iterator[bytes]:
    yield pack_table(TABLE, 0, "comment") + attribute(4, bytes(8))
    yield pack_chain(TABLE, "base", ChainHook(0, -100, "nat"))
    yield pack_chain(TABLE, "inner")
    yield pack_flowtable(TABLE, "flows", ("eth0", "veth1"))
    for spec in SPECS.values():
        yield pack_set(TABLE, NewSet(spec.name, spec.flags, 7, spec.key_length(FAMILY), 7, 4, counter=spec.counter), 1)
        form = spec.form(FAMILY)
        key, value = bytes(form.key_length * (1 + form.interval)), bytes(form.value_length)
        if spec.dynamic:
            packed = pack_expiring({key: (value, 60_000, 5_000)})
        elif form.is_map and not form.value_length:
            packed = pack_verdicts({key: "base"})
        else:
            packed = list(pack_elements(form, {key: value, b"\1" * len(key): value}))
        yield pack_element_list(TABLE, spec.name, packed)
    for chain in CHAINS[:4]:
        for rule in chain.rules[:3]:
            yield pack_rule(
                TABLE, chain.name, [(one.name, b"" if isinstance(one, OneOf) else one.encode()) for one in rule]
            )
    yield pack_rule("filter", "KUBE-SERVICES", [("match", string(1, "comment") + attribute(3, b"kubernetes\0"))])


def _check_ruleset(data: bytes) -> None:
    body = memoryview(data)
    for read in (read_table, table_of, parse_chain, parse_rule, read_generation, read_flowtable):
        allowed(lambda read=read: read(body))  # type: ignore[misc]
    for spec in SPECS.values():
        form = spec.form(FAMILY)
        allowed(lambda form=form: read_elements(form, [body, body]))  # type: ignore[misc]
        if form.is_map and form.value_length and not form.interval:
            allowed(lambda form=form: read_pairs(form, body))  # type: ignore[misc]
    with suppress(OSError):
        held = read_set(body)
        assert not any(same_set(held, spec, FAMILY) for spec in SPECS.values() if spec.name != held.name) or held.name
    with suppress(OSError):
        hook_of(read_chain(body).hook)
    with suppress(OSError):
        rule = read_rule(body)
        wanted = [Chain(chain.name, chain.rules[:1], chain.hook) for chain in CHAINS if chain.rules]
        hooks: dict[str, Hook | None] = {chain.name: chain.hook for chain in wanted}
        chain_deviation(wanted, hooks, {chain.name: [rule] for chain in wanted})
    for offset in (0, 20, len(data)):
        entry_at(data, offset)


def _others() -> Iterator[bytes]:
    key = attribute(1, struct.pack("=H", 2)) + attribute(2, struct.pack("=H", 6)) + attribute(3, bytes(16))
    yield bytes(4) + nested(1, key + attribute(4, b"\0\x50"))
    yield bytes(4) + nested(1, attribute(1, struct.pack("=H", 10)) + attribute(5, struct.pack("=I", 9)))
    yield bytes(4) + attribute(1, struct.pack("=H", 33))
    yield destroy_request("KUBE-CLUSTER-IP").body


def _check_others(data: bytes) -> None:
    body = memoryview(data)
    allowed(lambda: family_number(body))
    allowed(lambda: read_server(body))
    allowed(lambda: set_names([body]))


def _conversations() -> Iterator[bytes]:
    link = rtnetlink.create_link("nodeagent0", "dummy").body
    done = packed_message(NLMSG_DONE, 2, 1, bytes(4))
    yield packed_message(16, 2, 1, link) * 2 + done
    refused = struct.pack("=i", -17) + bytes(16) + string(1, "no") + attribute(2, struct.pack("=I", 20))
    yield packed_message(NLMSG_ERROR, NLM_F_ACK_TLVS, 1, refused) + packed_message(NLMSG_ERROR, 0, 2, bytes(20))
    yield packed_message(NLMSG_ERROR, 0, 1, struct.pack("=i", -(2**31)))


class ScriptedSocket:
    """A netlink socket whose kernel says this, and nothing after it."""

    said = b""

    def __init__(self, *_: int) -> None:
        self._left: list[bytes] = [self.said]

    def recv_into(self, buffer: bytearray, _: int = 0, flags: int = 0) -> int:
        if not self._left:
            raise TimeoutError
        datagram = self._left.pop()
        held = datagram[: len(buffer)]
        buffer[: len(held)] = held
        return len(datagram if flags & socket.MSG_TRUNC else held)

    def fileno(self) -> int:
        return 0

    def ignore(self, *_: object) -> None:
        """Nothing is sent, and nothing set."""

    bind = close = sendall = setsockopt = settimeout = ignore


def _check_conversations(data: bytes) -> None:
    one = Request(16, 0, b"")
    with patch("nodeagent.wire.netlink.socket.socket.socket", type("Scripted", (ScriptedSocket,), {"said": data})):
        for ask in (
            lambda netlink: netlink.ask(one),
            lambda netlink: list(netlink.dump(one)),
            lambda netlink: list(netlink.dump_datagrams(one)),
            lambda netlink: netlink.perform([one, one]),
            lambda netlink: [offset_at_fault(answer) for answer in netlink.acknowledgements(1, 2)],
            lambda netlink: netlink.count_confirmed(one, 20, [(b"\0", b"")], exact=False),
        ):
            with NetlinkSocket(NETLINK_ROUTE) as netlink:
                allowed(lambda ask=ask, netlink=netlink: ask(netlink))  # type: ignore[misc]


TARGETS = (
    Target("links, addresses and routes", tuple(_routes()), HEADS, _check_routes),
    Target("flows", tuple(_flows()), HEADS, _check_flows),
    Target("tables, chains, rules and sets", tuple(_ruleset()), HEADS, _check_ruleset),
    Target("virtual servers and ipsets", tuple(_others()), HEADS, _check_others),
    Target("conversations with the kernel", tuple(_conversations()), HEADS, _check_conversations),
)
