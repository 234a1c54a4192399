"""Reads the programs of tc and XDP at interfaces (linux/pkt_sched.h, pkt_cls.h, if_link.h); pure."""

import struct

from nodeagent.wire.netlink.framing import Request, attributes, reader, text_of
from nodeagent.wire.netlink.uapi import rtnetlink as uapi
from nodeagent.wire.netlink.uapi import traffic_control as tc

_TC = struct.Struct("=BxxxiIII")  # tcmsg: family, interface index, handle, parent, info
_LINK = struct.Struct("=BxHiII")  # ifinfomsg
_U32 = struct.Struct("=I")
_MAJOR = 0xFFFF0000
BEFORE_IP = frozenset({"clsact", "ingress"})
"""Queueing disciplines that hold filters and no packets."""
INGRESS, EGRESS = "ingress", "egress"
_PARENTS = {
    INGRESS: tc.TC_H_CLSACT & _MAJOR | tc.TC_H_MIN_INGRESS,
    EGRESS: tc.TC_H_CLSACT & _MAJOR | tc.TC_H_MIN_EGRESS,
}


def get_queueing() -> Request:
    """Returns the request for a dump of the queueing disciplines of all interfaces."""
    return Request(tc.RTM_GETQDISC, 0, _TC.pack(0, 0, 0, 0, 0))


@reader
def read_queueing(body: memoryview) -> tuple[int, str]:
    """Returns the index of the interface, and the kind."""
    return int(_TC.unpack_from(body)[1]), text_of(dict(attributes(body[_TC.size :]))[tc.TCA_KIND])


def get_filters(index: int, direction: str) -> Request:
    """Returns the request for a dump of the filters of an interface, for incoming or outgoing packets."""
    return Request(tc.RTM_GETTFILTER, 0, _TC.pack(0, index, 0, _PARENTS[direction], 0))


@reader
def read_filter(body: memoryview) -> str:
    """Returns the kind of a filter, and its name if it has one; empty for the head of a list of filters."""
    found = dict(attributes(body[_TC.size :]))
    handle = _TC.unpack_from(body)[2]
    if not handle or tc.TCA_OPTIONS not in found:
        return ""
    options = dict(attributes(found[tc.TCA_OPTIONS]))
    kind = text_of(found[tc.TCA_KIND])
    return f"{kind} {text_of(options[tc.TCA_BPF_NAME])}" if kind == "bpf" and tc.TCA_BPF_NAME in options else kind


@reader
def read_express_program(body: memoryview) -> tuple[int, int]:
    """Returns the index of the interface of an RTM_NEWLINK message, and the number of the XDP program there; 0: there is no program."""
    index = int(_LINK.unpack_from(body)[2])
    found = dict(attributes(body[_LINK.size :]))
    express = dict(attributes(found.get(uapi.IFLA_XDP, memoryview(b""))))
    if uapi.IFLA_XDP_ATTACHED not in express or not express[uapi.IFLA_XDP_ATTACHED][0]:
        return index, 0
    number = express.get(uapi.IFLA_XDP_PROG_ID)
    return index, _U32.unpack_from(number)[0] if number is not None else 0
