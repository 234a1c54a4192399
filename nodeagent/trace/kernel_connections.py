"""The connection table of this network namespace, as far as a question is about it."""

from pathlib import Path

from nodeagent.model.addresses import Protocol, pack_address, unpack_address
from nodeagent.netlink.conntrack import client_of, dump_udp, read_flows
from nodeagent.netlink.socket import DumpInterruptedError, NetlinkSocket, read_consistently
from nodeagent.netlink.uapi.netlink import NETLINK_NETFILTER
from nodeagent.trace.question import Question
from nodeagent.trace.report import Connections, TrackedFlow

_SETTINGS = Path("/proc/sys/net/netfilter")


def read_connections(question: Question) -> Connections:
    """How full it is, and the tracked UDP flows from the source to the destination. Raises OSError."""
    flows: tuple[TrackedFlow, ...] = ()
    if question.protocol is Protocol.UDP:
        try:
            flows = read_consistently(lambda: tuple(_flows(question)))
        except DumpInterruptedError:
            flows = ()
    return Connections(_number("nf_conntrack_count"), _number("nf_conntrack_max"), flows)


def _flows(question: Question) -> list[TrackedFlow]:
    source, destination = pack_address(question.source), pack_address(question.destination)
    found = []
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        for datagram in netlink.dump_datagrams(dump_udp(question.family, destination, question.port)):
            for flow in read_flows(question.family, datagram):
                client = client_of(question.family, flow)
                if client is not None and (client[0], flow.destination, flow.port) == (
                    source,
                    destination,
                    question.port,
                ):
                    end = unpack_address(flow.reply_source), flow.reply_port
                    found.append(TrackedFlow(question.source, client[1], end))
    return found


def _number(name: str) -> int:
    try:
        return int((_SETTINGS / name).read_text())
    except (OSError, ValueError):
        return 0
