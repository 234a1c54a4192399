"""The kernel's reports of traced packets (meta nftrace): a message for each rule that a packet reaches (pure)."""

from typing import NamedTuple

from nodeagent.model.addresses import unpack_address
from nodeagent.wire.netlink.framing import attribute_map, reader, text_of
from nodeagent.wire.netlink.netfilter import number
from nodeagent.wire.netlink.uapi import nf_tables as uapi

_NOTHING = memoryview(b"")
_IPV4 = 4
_DESTINATION = {4: (16, 4), 6: (24, 16)}


class TraceEvent(NamedTuple):
    """One message. packet: an id, the same for all messages of a packet with the same input interface. rule: a handle; 0
    for a policy or a return.

    stops: the verdict is to drop. destination, source_port: the packet's present ones, if the message contains its headers; else
    empty, 0.
    """

    packet: int
    table: str
    chain: str
    rule: int
    stops: bool
    destination: str
    source_port: int = 0


@reader
def read_trace(data: memoryview) -> TraceEvent:
    """Reads a message."""
    fields = attribute_map(data)
    kind = number(fields[uapi.NFTA_TRACE_TYPE])
    verdict = attribute_map(fields.get(uapi.NFTA_TRACE_VERDICT, _NOTHING))
    policy = fields.get(uapi.NFTA_TRACE_POLICY)
    code = verdict.get(uapi.NFTA_VERDICT_CODE, policy)
    return TraceEvent(
        number(fields[uapi.NFTA_TRACE_ID]),
        text_of(fields.get(uapi.NFTA_TRACE_TABLE, _NOTHING)),
        text_of(fields.get(uapi.NFTA_TRACE_CHAIN, _NOTHING)),
        number(fields.get(uapi.NFTA_TRACE_RULE_HANDLE, b"")) if kind == uapi.NFT_TRACETYPE_RULE else 0,
        code is not None and number(code) == uapi.NF_DROP,
        _destination(fields.get(uapi.NFTA_TRACE_NETWORK_HEADER, _NOTHING)),
        int.from_bytes(fields.get(uapi.NFTA_TRACE_TRANSPORT_HEADER, _NOTHING)[:2], "big"),
    )


def _destination(header: memoryview) -> str:
    if not header:
        return ""
    offset, length = _DESTINATION.get(header[0] >> _IPV4, (0, 0))
    packed = bytes(header[offset : offset + length])
    return unpack_address(packed) if length and len(packed) == length else ""
