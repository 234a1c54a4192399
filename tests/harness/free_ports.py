"""Ports for servers that a test is going to start."""

import random
import socket
from itertools import islice

_BELOW_THOSE_OF_CLIENTS = range(10_000, 32_000)
"""net.ipv4.ip_local_port_range begins with 32768: no connection of a test that runs beside this one gets any of these."""


def free_ports(count: int) -> list[int]:
    """That many different ports that nobody has right now, by TCP or UDP, in either family."""
    candidates = random.sample(_BELOW_THOSE_OF_CLIENTS, len(_BELOW_THOSE_OF_CLIENTS))
    return list(islice(filter(_is_free, candidates), count))


def _is_free(port: int) -> bool:
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET6, kind) as probe:
                probe.bind(("::", port))
    except OSError:
        return False
    return True
