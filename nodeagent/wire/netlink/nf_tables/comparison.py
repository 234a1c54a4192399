"""Compares an expression in the kernel with the one that was sent: the kernel adds defaults, and renumbers registers (pure)."""

import sys
from functools import lru_cache

from nodeagent.wire.netlink.framing import ATTRIBUTE, attribute_map, attributes, text_of
from nodeagent.wire.netlink.netfilter import number
from nodeagent.wire.netlink.uapi import nf_tables as uapi

_REGISTER_BYTES = 4
_MOST_PAIRS = 2048
"""Each audit compares every expression of a program; chains differ in few of theirs, so most pairs come again and again."""
BROAD_REGISTERS = {
    uapi.NFT_REG_1: uapi.NFT_REG32_00,
    uapi.NFT_REG_2: uapi.NFT_REG32_04,
    uapi.NFT_REG_3: uapi.NFT_REG32_08,
    uapi.NFT_REG_4: uapi.NFT_REG32_12,
}
"""The kernel reports 32-bit registers on a 16-byte boundary under the number of the 128-bit one."""


def set_looked_up(data: memoryview) -> str:
    """Returns the name of the set in the data of a lookup; empty if it has no name."""
    return text_of(attribute_map(data).get(uapi.NFTA_LOOKUP_SET, memoryview(b"")))


@lru_cache(maxsize=_MOST_PAIRS)
def covers(held: bytes, wanted: bytes) -> bool:
    """Returns whether an expression's data as dumped has every attribute that we set, with our value."""
    return _covers(held, wanted, top=True)


def _covers(held: bytes, wanted: bytes, *, top: bool) -> bool:
    kernel = attribute_map(memoryview(held))
    for kind, value in attributes(memoryview(wanted)):
        got = kernel.get(kind)
        if got is None:
            if any(value):
                return False
            continue
        if bytes(got) == bytes(value) or (top and len(value) == _REGISTER_BYTES and _same_register(value, got)):
            continue
        if not (_is_nest(bytes(got)) and _is_nest(bytes(value)) and _covers(bytes(got), bytes(value), top=False)):
            return False
    return True


def _same_register(ours: memoryview, theirs: memoryview) -> bool:
    reported = number(theirs)
    return BROAD_REGISTERS.get(reported, reported) == number(ours)


def _is_nest(data: bytes) -> bool:
    offset = 0
    if len(data) < ATTRIBUTE.size:
        return False
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 2], sys.byteorder)
        if length < ATTRIBUTE.size or offset + length > len(data):
            return False
        offset += (length + 3) & ~3
    return True
