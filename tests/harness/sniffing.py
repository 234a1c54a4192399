"""A record of the IP packets on an interface of a namespace, taken by this process."""

import socket
import struct
import threading
from typing import NamedTuple, Self

from nodeagent.lab.net.member import Member
from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import unpack_address

ETH_P_ALL = 3
ETH_P_IP = 0x0800
ETH_P_IPV6 = 0x86DD
IPV4_HEADER, IPV6_HEADER = 20, 40
"""Bytes of the headers, without options."""
PORT_PROTOCOLS = (6, 17, 132)
TICK = 0.05


class Packet(NamedTuple):
    """An IP packet seen on an interface; ports are 0 where the protocol has none."""

    interface: str
    outgoing: bool
    source: str
    destination: str
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    length: int = 0


class Sniffing:
    """Packets from now on, as the kernel shows them to AF_PACKET: incoming ones before netfilter, outgoing ones after it."""

    def __init__(self, member: Member, interface: str) -> None:
        self._socket = inside(member.namespace, lambda: _socket_on(interface))
        self._stopping = threading.Event()
        self._packets: list[Packet] = []
        self._thread = threading.Thread(target=self._run, daemon=True, name="sniff")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while True:
            try:
                data, origin = self._socket.recvfrom(65535)
            except TimeoutError:
                if self._stopping.is_set():
                    return
                continue
            packet = packet_of(data, origin[0], origin[1], outgoing=origin[2] == socket.PACKET_OUTGOING)
            if packet:
                self._packets.append(packet)

    def stop(self) -> tuple[Packet, ...]:
        """Ends it. Returns all packets."""
        self._stopping.set()
        self._thread.join()
        self._socket.close()
        return tuple(self._packets)


def _socket_on(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    opened.bind((interface, ETH_P_ALL))
    opened.settimeout(TICK)
    return opened


def packet_of(data: bytes, interface: str, ethertype: int, *, outgoing: bool) -> Packet | None:
    """Returns the fields of an IP header (without extension headers); None for other traffic."""
    if ethertype == ETH_P_IP and len(data) >= IPV4_HEADER:
        start, protocol = (data[0] & 15) * 4, data[9]
        source, destination = data[12:16], data[16:20]
    elif ethertype == ETH_P_IPV6 and len(data) >= IPV6_HEADER:
        start, protocol = IPV6_HEADER, data[6]
        source, destination = data[8:24], data[24:40]
    else:
        return None
    ports = (0, 0)
    if protocol in PORT_PROTOCOLS and len(data) >= start + 4:
        ports = struct.unpack_from("!HH", data, start)
    return Packet(
        interface, outgoing, unpack_address(source), unpack_address(destination), protocol, *ports, length=len(data)
    )
