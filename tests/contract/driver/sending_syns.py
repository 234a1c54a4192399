"""Sends first packets of TCP connections until it is killed: `sending_syns.py SOURCE,PORT,DESTINATION,PORT …`."""

import socket
import struct
import sys

_TCP, _SYN = 6, 2


def packet(source: str, source_port: int, destination: str, port: int) -> bytes:
    """A SYN with its IP header; the kernel fills in checksums that nobody looks at."""
    tcp = struct.pack("!HHIIBBHHH", source_port, port, 1, 0, 5 << 4, _SYN, 1024, 0, 0)
    if ":" in source:
        ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
        return struct.pack("!IHBB", 6 << 28, len(tcp), _TCP, 64) + ends + tcp
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, _TCP, 0) + ends + tcp


def main() -> None:
    """All flows in turn."""
    flows = [argument.split(",") for argument in sys.argv[1:]]
    family = socket.AF_INET6 if ":" in flows[0][0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        ready = [(packet(a, int(b), c, int(d)), (c, 0)) for a, b, c, d in flows]
        while True:
            for data, destination in ready:
                try:
                    sender.sendto(data, destination)
                except OSError:  # no room
                    continue


if __name__ == "__main__":
    main()
