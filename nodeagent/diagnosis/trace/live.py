"""Follows real packets with the kernel's nftrace.

A table of our own turns tracing on for packets of one connection. It belongs to this process's socket
(NFT_TABLE_F_OWNER without PERSIST), so the kernel removes it when the process ends in any way.
"""

import errno
import os
import select
import time
from collections.abc import Callable

from nodeagent.diagnosis.simulator.packet import SYN
from nodeagent.diagnosis.trace.followed import OWN_HELPER, packets_of
from nodeagent.diagnosis.trace.question import Question
from nodeagent.model.addresses import Protocol, pack_address
from nodeagent.proxy.dataplane.errors import DataplaneError, Unsupported
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.proxy.dataplane.program.loads import Loader
from nodeagent.wire.netlink.framing import messages
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, message_type, nfproto
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.nf_tables.batch import pack_batch
from nodeagent.wire.netlink.nf_tables.ruleset_objects import ChainHook, pack_chain, pack_rule, pack_table
from nodeagent.wire.netlink.nf_tables.tracing import TraceEvent, read_trace
from nodeagent.wire.netlink.socket import NetlinkSocket, errno_of
from nodeagent.wire.netlink.uapi import nf_tables as uapi
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL
from nodeagent.wire.netlink.uapi.nfnetlink import NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTRACE

BEFORE_ALL = -450
"""Before defragmentation (-400), so before every chain that decides."""
IDLE_SECONDS = 0.3
"""After this time without a message, the seen packets have passed."""
_BUFFER_BYTES = 8 << 20
_ACK = 0x10
_TRACE = message_type(NFNL_SUBSYS_NFTABLES, uapi.NFT_MSG_TRACE)


def follow(question: Question, count: int, seconds: float, ready: Callable[[], None]) -> list[TraceEvent]:
    """Returns all events of the first `count` packets that begin such connections (UDP: of any such packets).

    ready: called when tracing is on. Ends after `seconds` with what was seen. Raises DataplaneError, OSError.
    """
    events: list[TraceEvent] = []
    with (
        NetlinkSocket(NETLINK_NETFILTER, 1 << (NFNLGRP_NFTRACE - 1)) as events_socket,
        NetlinkSocket(NETLINK_NETFILTER) as owner,
    ):
        events_socket.enlarge_receive_buffer(_BUFFER_BYTES)
        _turn_on(owner, question)
        ready()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            enough = len(packets_of(events)) >= count
            if not select.select([events_socket], [], [], min(left, IDLE_SECONDS) if enough else left)[0]:
                break
            events += _read(events_socket)
    return events


def _read(events_socket: NetlinkSocket) -> list[TraceEvent]:
    found = []
    while (datagram := events_socket.receive_now()) is not None:
        found += [read_trace(one.body[GENMSG_LENGTH:]) for one in messages(datagram) if one.type == _TRACE]
    return found


def _turn_on(owner: NetlinkSocket, question: Question) -> None:
    """Turns tracing on. Raises Unsupported if the kernel has no tables that end with their owner (before Linux 5.12)."""
    table = f"{OWN_HELPER}-{os.getpid()}"
    rule = [(part.name, part.encode()) for part in _chosen(question) if not isinstance(part, nft.OneOf)]
    operations = [(uapi.NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, pack_table(table, uapi.NFT_TABLE_F_OWNER))]
    for hook in (HookNumber.PREROUTING, HookNumber.OUTPUT):
        name = hook.name.lower()
        operations += [
            (uapi.NFT_MSG_NEWCHAIN, NLM_F_CREATE, pack_chain(table, name, ChainHook(hook, BEFORE_ALL, "filter"))),
            (uapi.NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, pack_rule(table, name, rule)),
        ]
    first = owner.reserve(len(operations) + 2)
    owner.send(pack_batch(nfproto(question.family), operations, first))
    for answer in owner.acknowledgements(first, first + len(operations)):
        code = errno_of(answer)
        if code in (errno.EOPNOTSUPP, errno.EINVAL):
            raise Unsupported("this kernel has no tables that end with their owner (Linux 5.12): --live needs them")
        if code:
            raise DataplaneError(f"tracing cannot be turned on: {os.strerror(code)}")


def _chosen(question: Question) -> nft.Rule:
    """Returns a rule that matches the packets to follow, and turns tracing on for them."""
    regs = Loader(question.family)
    rule: nft.Rule = (
        regs.source(0),
        nft.Cmp(0, pack_address(question.source)),
        regs.destination(0),
        nft.Cmp(0, pack_address(question.destination)),
        nft.Meta(0, nft.MetaKey.L4PROTO),
        nft.Cmp(0, bytes((question.protocol,))),
        nft.Payload(0, nft.PayloadBase.TRANSPORT, 2, 2),
        nft.Cmp(0, question.port.to_bytes(2, "big")),
    )
    if question.protocol is Protocol.TCP:
        rule = (
            *rule,
            nft.Payload(0, nft.PayloadBase.TRANSPORT, 13, 1),
            nft.Mask(0, bytes((SYN | _ACK,))),
            nft.Cmp(0, bytes((SYN,))),
        )
    return (*rule, nft.Immediate(0, b"\1"), nft.MetaSet(0, nft.MetaKey.NFTRACE))
