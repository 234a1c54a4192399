"""The content of a table's sets and maps, as bytes: the desired and the programmed elements have this same form.

A key is the concatenation of its fields as the kernel's registers hold them (each padded to four bytes; a lone field
unpadded). In an interval set a key is first ‖ last, both inclusive. Values of maps likewise; of sets, empty. If
elements carry a comment (the name of the service port), it follows the value as text.
Read-back yields the same form as rendering, so restart, drift repair and diff are one dictionary difference.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network, summarize_address_range

from nodeagent.model.addresses import Family, Protocol, family_of, pack_address, pack_addresses
from nodeagent.model.carried import carried_ranges
from nodeagent.model.names import ServicePortName
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import PickClass, pick_class

MAX_COMMENT = 127
KNOWN_CIDRS = 1024

Elements = dict[bytes, bytes]
TableImage = dict[str, Elements]
ReadableImage = Mapping[str, Mapping[bytes, bytes]]
"""One that is read only."""

_PORT_PAD = struct.Struct(">H2x")
_PROTOCOL_PAD = struct.Struct("B3x")
_NATIVE = struct.Struct("=I")
CLASS_LENGTH = _NATIVE.size
"""Bytes of a class, at the beginning of a frontend's value."""

_CLASS_MAPS = (
    schema.FRONTENDS,
    schema.GUARDED_FRONTENDS,
    schema.FRONTENDS_CLUSTER_SCOPE,
    schema.FRONTENDS_LOCAL_SCOPE,
    schema.NODEPORTS,
    schema.NODEPORTS_CLUSTER_SCOPE,
    schema.NODEPORTS_LOCAL_SCOPE,
)
_TIMEOUT_MAPS = (schema.STICKY_TIMEOUTS, schema.NODEPORT_STICKY_TIMEOUTS)


def packed_protocol(protocol: Protocol) -> bytes:
    """Returns an inet_proto field of a concatenation."""
    return _PROTOCOL_PAD.pack(protocol)


def packed_class(number: int) -> bytes:
    """Returns a classid field (native byte order, as skb->priority)."""
    return _NATIVE.pack(number)


def class_of(value: bytes) -> int:
    """Returns the number of a classid field; a comment may follow it."""
    number: int = _NATIVE.unpack_from(value)[0]
    return number


def comment_of(value: bytes) -> bytes:
    """Returns the comment in a frontend's value."""
    return value[CLASS_LENGTH:]


def service_name(value: bytes) -> bytes:
    """Returns the Service (`namespace/name`) in the comment of a frontend's value."""
    return comment_of(value).partition(b":")[0]


def frontend_key(address: str, protocol: Protocol, port: int) -> bytes:
    """Returns daddr . l4proto . dport"""
    return pack_address(address) + _PROTOCOL_PAD.pack(protocol) + _PORT_PAD.pack(port)


def node_port_key(protocol: Protocol, port: int) -> bytes:
    """Returns l4proto . dport"""
    return _PROTOCOL_PAD.pack(protocol) + _PORT_PAD.pack(port)


def endpoint_value(address: str, port: int) -> bytes:
    """Returns address . port"""
    return pack_address(address) + _PORT_PAD.pack(port)


def endpoint_values(addresses: Sequence[str], port: int) -> list[bytes]:
    """Returns address . port of each address, at least one; all are of one family."""
    packed_port = _PORT_PAD.pack(port)
    return [packed + packed_port for packed in pack_addresses(addresses)]


def interval_elements(cidrs: Iterable[str], family: Family) -> Elements:
    """Returns the CIDRs of one family as interval elements. They must not overlap."""
    elements: Elements = {}
    for cidr in cidrs:
        if family_of(cidr) is family:
            elements[_first_and_last(cidr)] = b""
    return elements


def interval_cidrs(elements: Iterable[bytes]) -> Iterator[str]:
    """Yields the CIDRs of interval elements."""
    for ends in elements:
        half = len(ends) // 2
        yield from map(str, summarize_address_range(ip_address(ends[:half]), ip_address(ends[half:])))


def ping_elements(service_cidrs: Iterable[str], family: Family) -> Elements:
    """Returns, for each range of IPv6 ClusterIPs that are not local, its first address, which answers `ping` for all of them."""
    length = family.address_length
    return {
        found.low.to_bytes(length) + found.high.to_bytes(length): pack_address(found.first)
        for found in (carried_ranges(service_cidrs) if family is Family.IPV6 else ())
    }


@lru_cache(KNOWN_CIDRS)
def _first_and_last(cidr: str) -> bytes:
    """Returns first and last address. Cached: each pass asks for the same few CIDRs."""
    network = ip_network(cidr)
    return network.network_address.packed + network.broadcast_address.packed


def comment_text(name: ServicePortName) -> bytes:
    """Returns the comment of a frontend: `namespace/service:port`, without the port if that is too long for nft.

    nft accepts 127 characters; a namespace and a service name (63 each, RFC 1123 labels) always fit.
    """
    text = _escape_for_nft(str(name)).encode()
    if len(text) <= MAX_COMMENT:
        return text
    return _escape_for_nft(str(name.service)).encode()[:MAX_COMMENT].decode(errors="ignore").encode()


def _escape_for_nft(name: str) -> str:
    """Escapes what nft would print unescaped to a terminal, and the quotes around a comment."""
    return printable(name).replace('"', r"\x22")


def empty_image(names: Iterable[str]) -> TableImage:
    """Returns an image in which every set exists and is empty."""
    return {name: {} for name in names}


def classes_in(elements_by_map: ReadableImage) -> set[PickClass]:
    """Returns the pick classes that the frontends of an image (or of a delta's puts) lead to."""
    values = {value[:CLASS_LENGTH] for name in _CLASS_MAPS for value in elements_by_map.get(name, {}).values()}
    numbers = set(map(class_of, values))
    return {pick for number in numbers if (pick := pick_class(number)) is not None}


def timeouts_in(elements_by_map: ReadableImage) -> set[int]:
    """Returns the affinity timeouts (seconds) in an image or in a delta's puts."""
    return {class_of(value) for name in _TIMEOUT_MAPS for value in set(elements_by_map.get(name, {}).values())}
