"""The part of this network namespace's connection table that a question is about."""

from pathlib import Path

from nodeagent.diagnosis.trace.connections import Attempt, Connections, TrackedFlow, silent_endpoints
from nodeagent.diagnosis.trace.question import Question
from nodeagent.model.addresses import Protocol, pack_address, unpack_address
from nodeagent.proxy.dataplane.conntrack_list import listed_flows, read_flow_list
from nodeagent.proxy.dataplane.conntrack_size import flows_tracked
from nodeagent.proxy.dataplane.source_ports import read_port_shortages
from nodeagent.wire.netlink.conntrack import NO_CONNTRACK, FlowState, client_of, dump_udp, read_flows, state_of_flow
from nodeagent.wire.netlink.socket import NetlinkSocket, is_temporary, retry
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

_SETTINGS = Path("/proc/sys/net/netfilter")
_STATES = {
    1: "syn_sent",
    2: "syn_recv",
    3: "established",
    4: "fin_wait",
    5: "close_wait",
    6: "last_ack",
    7: "time_wait",
    8: "close",
}
"""TCP_CONNTRACK_… → the setting for how long such a connection is kept after its last packet."""


def read_connections(question: Question) -> Connections:
    """Returns how full the table is, the tracked UDP flows from source to destination, and unanswered TCP connections.
    Raises OSError."""
    try:
        found = retry(lambda: tuple(_flows(question)))
    except OSError as error:
        if not is_temporary(error) and error.errno != NO_CONNTRACK:
            raise
        found = ()
    count, most = _number("nf_conntrack_count"), _number("nf_conntrack_max")
    crowds = read_port_shortages(question.family, question.protocol)
    if question.protocol is Protocol.UDP:
        return Connections(count, most, tuple(flow for flow, _ in found), crowds=crowds)
    return Connections(
        count, most, (), silent_endpoints([(flow.endpoint, _attempt(life)) for flow, life in found]), crowds
    )


def _flows(question: Question) -> list[tuple[TrackedFlow, FlowState]]:
    if question.protocol not in (Protocol.TCP, Protocol.UDP) or not flows_tracked():
        return []
    source, destination = pack_address(question.source), pack_address(question.destination)
    wanted = int(question.protocol)
    listed = read_flow_list()
    if listed is not None and all(
        (flow.destination, flow.port) != (destination, question.port)
        for flow in listed_flows(listed, question.family, wanted)
    ):
        return []
    found = []
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        # A busy Service has very many flows, of which one client has few.
        request = dump_udp(question.family, destination, question.port, source=source, of=wanted)
        for datagram in netlink.dump_datagrams(request):
            for flow in read_flows(question.family, datagram, wanted=wanted):
                client = client_of(question.family, flow)
                if client is not None and (client[0], flow.destination, flow.port) == (
                    source,
                    destination,
                    question.port,
                ):
                    end = unpack_address(flow.reply_source), flow.reply_port
                    found.append((TrackedFlow(question.source, client[1], end), state_of_flow(flow)))
    return found


def _attempt(life: FlowState) -> Attempt:
    """Returns a TCP connection. The age of its last packet follows from the time that the entry is still kept. An
    established one that waits for an acknowledgement is kept much shorter (nf_conntrack_tcp_packet)."""
    state = _STATES.get(life.state, "")
    waiting = _number("nf_conntrack_tcp_timeout_unacknowledged")
    if state == "established" and life.left <= waiting:
        return Attempt(answered=False, ago=waiting - life.left)
    return Attempt(life.answered, max(0, _number(f"nf_conntrack_tcp_timeout_{state}") - life.left))


def _number(name: str) -> int:
    try:
        return int((_SETTINGS / name).read_text())
    except (OSError, ValueError):
        return 0
