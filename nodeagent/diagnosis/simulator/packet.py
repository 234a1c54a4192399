"""The first packet of a connection, and its possible outcomes: input and output of the interpreter (pure)."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from nodeagent.diagnosis.simulator.spelling import Step
from nodeagent.model.addresses import Family, family_of, pack_address

TCP, UDP, SCTP = 6, 17, 132
ICMP = {Family.IPV4: 1, Family.IPV6: 58}
SYN = 0x02
RST = 0x04
ACK = 0x10

_ECHO_REQUEST = {Family.IPV4: 8, Family.IPV6: 128}


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a connection, before any translation.

    Addresses are canonical text of one family; `protocol` is the IP protocol number. iif: its input interface; None:
    this node sends it, so it takes the output hook. priority: skb->priority on arrival (SO_PRIORITY of a local sender).
    """

    source: str
    destination: str
    protocol: int = TCP
    destination_port: int = 0
    source_port: int = 40000
    iif: str | None = "eth0"
    tcp_flags: int = SYN
    priority: int = 0

    @property
    def family(self) -> Family:
        """The family of its addresses."""
        return family_of(self.destination)


def network_header(packet: Packet, destination: str) -> bytes:
    """Returns the IP header without options (RFC 791, RFC 8200) towards `destination`; lengths and checksum are 0."""
    addresses = pack_address(packet.source) + pack_address(destination)
    if packet.family is Family.IPV4:
        return struct.pack(">BBHHHBBH", 0x45, 0, 0, 0, 0, 64, packet.protocol, 0) + addresses
    return struct.pack(">IHBB", 6 << 28, 0, packet.protocol, 64) + addresses


def transport_header(packet: Packet, destination_port: int) -> bytes:
    """Returns the transport header: for ICMP an echo request; empty for a protocol that is not supported."""
    ports = struct.pack(">HH", packet.source_port, destination_port)
    if packet.protocol == TCP:
        return ports + struct.pack(">IIBBHHH", 0, 0, 5 << 4, packet.tcp_flags, 0, 0, 0)
    if packet.protocol == UDP:
        return ports + struct.pack(">HH", 8, 0)
    if packet.protocol == SCTP:
        return ports + struct.pack(">II", 0, 0)
    if packet.protocol == ICMP[packet.family]:
        return struct.pack(">BBHHH", _ECHO_REQUEST[packet.family], 0, 0, packet.source_port, 0)
    return b""


class Fate(Enum):
    """The fate of a packet.

    UNTOUCHED: the table lets it pass unchanged. REFUSED: the sender gets an error at once.
    """

    TRANSLATED = "translated"
    REFUSED = "refused"
    DROPPED = "dropped"
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A possible outcome for a packet, and its probability.

    destination, port: where it goes; as sent unless `fate` is TRANSLATED. masqueraded: whether its source becomes the
    node's. untracked: whether connection tracking ignores it. reset: refused by a TCP reset, not by ICMP.
    delivered_here: whether it ends at this node. priority: skb->priority as it leaves the table. learned: elements of
    dynamic maps that it added or refreshed, as map → key → value. lookups: number of set and map lookups. trace: every
    rule it met, in order.
    """

    fate: Fate
    probability: Fraction
    destination: str
    port: int
    masqueraded: bool = False
    untracked: bool = False
    reset: bool = False
    delivered_here: bool = False
    priority: int = 0
    learned: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=dict)
    lookups: int = 0
    trace: tuple[Step, ...] = ()

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """The destination of the translation; None if it was not translated."""
        return (self.destination, self.port) if self.fate is Fate.TRANSLATED else None
