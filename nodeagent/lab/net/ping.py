"""ICMP echo (RFC 792, RFC 4443) over a raw socket; needs no ping program and no ping_group_range."""

import random
import socket
import struct
import time

from nodeagent.lab.net.actor_messages import Answer
from nodeagent.lab.net.dial import failed
from nodeagent.model.addresses import Family, family_of

REQUEST = {Family.IPV4: 8, Family.IPV6: 128}
REPLY = {Family.IPV4: 0, Family.IPV6: 129}


def internet_checksum(data: bytes) -> int:
    """Returns the checksum of RFC 1071, over an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def echo(family: Family, identifier: int, sequence: int) -> bytes:
    """Returns an echo request; the kernel fills in the ICMPv6 checksum."""
    payload = b"nodeagent lab   "
    head = struct.pack("!BBHHH", REQUEST[family], 0, 0, identifier, sequence)
    if family is Family.IPV6:
        return head + payload
    checksum = internet_checksum(head + payload)
    return struct.pack("!BBHHH", REQUEST[family], 0, checksum, identifier, sequence) + payload


def ping(address: str, count: int, timeout: float) -> list[Answer]:
    """Returns one answer per request: `name` is empty, `local` the address that replied. Each call is a new connection."""
    family = family_of(address)
    protocol = socket.IPPROTO_ICMP if family is Family.IPV4 else socket.IPPROTO_ICMPV6
    identifier = random.getrandbits(16)
    answers = []
    with socket.socket(family.socket_family, socket.SOCK_RAW, protocol) as raw:
        for sequence in range(1, count + 1):
            started = time.monotonic()
            try:
                raw.connect((address, 0))
                raw.send(echo(family, identifier, sequence))
                await_reply(raw, family, (identifier, sequence), started + timeout)
            except OSError as error:
                answers.append(failed(error, started))
            else:
                answers.append(Answer(local=address, started=started, seconds=time.monotonic() - started))
    return answers


def await_reply(raw: socket.socket, family: Family, wanted: tuple[int, int], deadline: float) -> None:
    """Waits for the reply. Raises TimeoutError, OSError."""
    while (left := deadline - time.monotonic()) > 0:
        raw.settimeout(left)
        packet = raw.recv(2048)
        if family is Family.IPV4:
            packet = packet[(packet[0] & 15) * 4 :]
        kind, _, _, identifier, sequence = struct.unpack_from("!BBHHH", packet)
        if kind == REPLY[family] and (identifier, sequence) == wanted:
            return
    raise TimeoutError("no echo reply")
