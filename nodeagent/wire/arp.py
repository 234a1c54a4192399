"""ARP packets for IPv4 on Ethernet (RFC 826), without the header of the link; pure."""

import struct
from typing import NamedTuple

from nodeagent.model.addresses import pack_address, unpack_address

_PACKET = struct.Struct("!HHBBH6s4s6s4s")  # hardware, protocol, lengths, operation, sender, target
_KIND = (1, 0x0800, 6, 4)  # Ethernet, IPv4, their lengths
_REQUEST, _REPLY = 1, 2
_NOBODY = "0.0.0.0"  # noqa: S104 - an address of no host, not one to listen on


class ArpReply(NamedTuple):
    """Which hardware address a host has that answers for an IPv4 address."""

    address: str
    hardware: bytes


def pack_probe(address: str, hardware: bytes) -> bytes:
    """Returns a request for an address from the interface with this hardware address. It names no address of its sender, so that no host
    learns one from it (an ARP Probe, RFC 5227)."""
    return _PACKET.pack(*_KIND, _REQUEST, hardware, pack_address(_NOBODY), bytes(6), pack_address(address))


def read_reply(packet: bytes) -> ArpReply | None:
    """Returns what a packet answers; None if it is no reply for IPv4 on Ethernet."""
    if len(packet) < _PACKET.size:
        return None
    *kind, operation, hardware, address, _, _ = _PACKET.unpack_from(packet)
    if tuple(kind) != _KIND or operation != _REPLY:
        return None
    return ArpReply(unpack_address(address), hardware)
