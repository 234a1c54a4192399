"""Run as a program in a host's namespace: datagrams, each the first of a flow of its own, as fast as it goes.

python datagram_sender.py COUNT ADDRESS PORT      prints how many were sent, and the seconds it took
"""

import socket
import struct
import sys
import time

from nodeagent.model.addresses import Family, family_of

LOWEST, SOURCES = 1024, 60_000
UDP_CHECKSUM_AT = 6


def main(count: int, address: str, port: int) -> tuple[int, float]:
    """Datagrams from changing source ports. A raw socket needs no port of its own for each."""
    family = family_of(address)
    sender = socket.socket(family.socket_family, socket.SOCK_RAW, socket.IPPROTO_UDP)
    if family is Family.IPV6:
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_CHECKSUM, UDP_CHECKSUM_AT)
    sender.connect((address, 0))
    began = time.monotonic()
    for number in range(count):
        sender.send(struct.pack("!HHHH", LOWEST + number % SOURCES, port, 8, 0))
    return count, time.monotonic() - began


if __name__ == "__main__":
    print(*main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
