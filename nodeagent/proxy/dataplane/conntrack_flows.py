"""Reads the connections to the addresses of a Service that the kernel tracks. Blocking."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from nodeagent.model.addresses import Family, Protocol, endpoint_text, pack_address, unpack_address
from nodeagent.model.frontend import Frontend
from nodeagent.proxy.dataplane.conntrack_list import listed_flows, read_flow_list
from nodeagent.proxy.dataplane.conntrack_size import flows_tracked, is_one_walk_faster
from nodeagent.wire.netlink.conntrack import NO_CONNTRACK, Flow, dump_udp, read_flows
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

Place = tuple[bytes, int]
"""A packed address and a port."""


def tracked_flows(family: Family, frontends: Sequence[Frontend]) -> Mapping[str, int]:
    """Counts tracked connections to the addresses of a Service; returns {endpoint: count}, empty if the kernel tracks none, or
    does not list them (CONFIG_NF_CT_NETLINK). Raises OSError."""
    counted: Counter[str] = Counter()
    listed = read_flow_list()
    for protocol, places in _places(frontends).items() if flows_tracked() else ():
        if listed is not None:
            counted.update(_ends(listed_flows(listed, family, protocol), places))
            continue
        try:
            if is_one_walk_faster(len(places)):
                counted.update(retry(partial(_flows_to, family, protocol, places, dump_udp(family, of=protocol))))
                continue
            for address, port in places:
                request = dump_udp(family, address, port, of=protocol)
                counted.update(retry(partial(_flows_to, family, protocol, {(address, port)}, request)))
        except OSError as error:
            if error.errno != NO_CONNTRACK:
                raise
    return dict(sorted(counted.items()))


def _places(frontends: Sequence[Frontend]) -> dict[Protocol, set[Place]]:
    found: dict[Protocol, set[Place]] = {}
    for one in frontends:
        if one.address is not None:
            found.setdefault(one.protocol, set()).add((pack_address(one.address), one.port))
    return found


def _flows_to(family: Family, protocol: Protocol, places: set[Place], request: Request) -> Counter[str]:
    counted: Counter[str] = Counter()
    with NetlinkSocket(NETLINK_NETFILTER) as reader:
        for datagram in reader.dump_datagrams(request):
            counted.update(_ends(read_flows(family, datagram, wanted=protocol), places))
    return counted


def _ends(flows: Iterable[Flow], places: set[Place]) -> Iterator[str]:
    """Yields the endpoint of each flow to one of the places."""
    for flow in flows:
        if (flow.destination, flow.port) in places:
            yield endpoint_text(unpack_address(flow.reply_source), flow.reply_port)
