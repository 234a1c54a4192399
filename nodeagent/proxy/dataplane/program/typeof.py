"""User data of a set, which the nft program reads: byte orders, `typeof` and a comment (pure).

The kernel only stores it. nft needs `typeof` to list and load a key with a slot: the type of the result of `numgen` has no length
of its own. Numbers are those of nft 1.0.2, 1.0.6 and 1.1.3 (include/expression.h, include/proto.h, src/numgen.c, libnftnl/udata.h).
"""

import struct
from collections.abc import Sequence

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.classes import CLUSTER_SCOPE_OFFSET, MAX_BACKENDS
from nodeagent.proxy.dataplane.program.schema import FieldType, SetSpec
from nodeagent.wire.netlink.nf_tables.expressions import MetaKey
from nodeagent.wire.netlink.nf_tables.user_data import pack_user_data
from nodeagent.wire.netlink.uapi import nf_tables as uapi

_BYTE_ORDER_NONE, _BYTE_ORDER_HOST = 0, 1
_EXPR_PAYLOAD, _EXPR_META, _EXPR_CONCAT, _EXPR_NUMGEN = 7, 9, 13, 23
"""enum expr_types."""
_PROTO_DESC_TH, _PROTO_DESC_IP, _PROTO_DESC_IP6 = 11, 12, 13
"""enum proto_desc_id."""
_THHDR_DPORT = 2
_IPHDR_DADDR, _IP6HDR_DADDR = 12, 9
"""enum th_hdr_fields, ip_hdr_fields and ip6_hdr_fields: a field's place among those that nft knows."""
_SLOTS = CLUSTER_SCOPE_OFFSET + MAX_BACKENDS + 1


def set_user_data(spec: SetSpec, family: Family) -> bytes:
    """Returns entries of type, length and value. A byte order is given only where nft would otherwise print a lone classid swapped."""
    entries = []
    if spec.key == (FieldType.CLASS,):
        entries.append((uapi.NFTNL_UDATA_SET_KEYBYTEORDER, _u32(_BYTE_ORDER_HOST)))
    elif spec.data == (FieldType.CLASS,):
        entries.append((uapi.NFTNL_UDATA_SET_KEYBYTEORDER, _u32(_BYTE_ORDER_NONE)))
    if spec.data == (FieldType.CLASS,):
        entries.append((uapi.NFTNL_UDATA_SET_DATABYTEORDER, _u32(_BYTE_ORDER_HOST)))
    if FieldType.SLOT in spec.key:
        entries.append((uapi.NFTNL_UDATA_SET_KEY_TYPEOF, _expression(_EXPR_CONCAT, _concatenation(spec.key, family))))
        entries.append((uapi.NFTNL_UDATA_SET_DATA_TYPEOF, _expression(_EXPR_CONCAT, _concatenation(spec.data, family))))
    if spec.comment:
        entries.append((uapi.NFTNL_UDATA_SET_COMMENT, spec.comment.encode() + b"\0"))
    return pack_user_data(*entries)


def _concatenation(fields: Sequence[FieldType], family: Family) -> bytes:
    return pack_user_data(*((place, _field(kind, family)) for place, kind in enumerate(fields)))


def _field(kind: FieldType, family: Family) -> bytes:
    """`ip daddr`, `meta l4proto`, `th dport` or `numgen random`."""
    match kind:
        case FieldType.ADDRESS if family is Family.IPV4:
            return _expression(_EXPR_PAYLOAD, _numbers(_PROTO_DESC_IP, _IPHDR_DADDR))
        case FieldType.ADDRESS:
            return _expression(_EXPR_PAYLOAD, _numbers(_PROTO_DESC_IP6, _IP6HDR_DADDR))
        case FieldType.PROTOCOL:
            return _expression(_EXPR_META, _numbers(MetaKey.L4PROTO))
        case FieldType.PORT:
            return _expression(_EXPR_PAYLOAD, _numbers(_PROTO_DESC_TH, _THHDR_DPORT))
        case FieldType.SLOT:
            return _expression(_EXPR_NUMGEN, _numbers(uapi.NFT_NG_RANDOM, _SLOTS, 0))
        case _:
            raise ValueError(f"{kind.name} is not part of a key with a slot")


def _expression(kind: int, described: bytes) -> bytes:
    return pack_user_data((0, _u32(kind)), (1, described))


def _numbers(*values: int) -> bytes:
    return pack_user_data(*((place, _u32(value)) for place, value in enumerate(values)))


def _u32(value: int) -> bytes:
    return struct.pack("=I", value)
