"""Reads the connections to the addresses of a Service that the kernel tracks. Blocking."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from nodeagent.model.addresses import Family, Protocol, endpoint_text, pack_address, unpack_address
from nodeagent.model.frontend import Frontend
from nodeagent.wire.netlink.conntrack import NO_CONNTRACK, dump_udp, read_flows
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER


def tracked_flows(family: Family, frontends: Sequence[Frontend]) -> Mapping[str, int]:
    """Counts tracked connections to the addresses of a Service; returns {endpoint: count}, empty if the kernel tracks none, or
    does not list them (CONFIG_NF_CT_NETLINK). Raises OSError."""
    counted: Counter[str] = Counter()
    places = dict.fromkeys((one.address, one.port, one.protocol) for one in frontends if one.address is not None)
    for place in places:
        try:
            counted.update(retry(partial(_flows_to, family, *place)))
        except OSError as error:
            if error.errno != NO_CONNTRACK:
                raise
    return dict(sorted(counted.items()))


def _flows_to(family: Family, address: str, port: int, protocol: Protocol) -> Counter[str]:
    packed = pack_address(address)
    counted: Counter[str] = Counter()
    with NetlinkSocket(NETLINK_NETFILTER) as reader:
        for datagram in reader.dump_datagrams(dump_udp(family, packed, port, of=protocol)):
            for flow in read_flows(family, datagram, wanted=protocol):
                if (flow.destination, flow.port) == (packed, port):
                    counted[endpoint_text(unpack_address(flow.reply_source), flow.reply_port)] += 1
    return counted
