"""Counts how many source ports an address of the node has left towards an endpoint, for connections that are masqueraded."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from nodeagent.model.addresses import Family, Protocol, endpoint_text, unpack_address
from nodeagent.wire.netlink.conntrack import dump_udp, masquerade_address, read_flows
from nodeagent.wire.netlink.socket import DumpInterruptedError, NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

PORTS = 64512
"""From 1024 to 65535: a connection whose own port is taken gets one of these (nf_nat_l4proto_unique_tuple). ip_local_port_range does
not count."""
_COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")
SCARCE = 0.9
"""The kernel tries some 240 ports, in rows with random beginnings: if more than this part is taken it often finds none."""


class PortShortage(Struct, frozen=True):
    """Connections of one protocol to one endpoint that have one address of the node as their masqueraded source."""

    protocol: Protocol
    source: str
    endpoint: tuple[str, int]
    count: int

    @property
    def full(self) -> bool:
        """Whether no port is left."""
        return self.count >= PORTS

    def __str__(self) -> str:
        taken = "all" if self.full else f"{self.count} of {PORTS}"
        return f"{taken} source ports of {self.source} towards {endpoint_text(*self.endpoint)}/{self.protocol.name} are taken"

    @property
    def follows(self) -> str:
        """What happens to new connections."""
        return (
            "new connections that are masqueraded to it are dropped"
            if self.full
            else "some of the new ones are dropped"
        )


def is_scarce(count: int) -> bool:
    """Returns whether this many connections leave too few ports."""
    return count >= SCARCE * PORTS


CURE = (
    "see who opens so many: conntrack -L -r {}; give the Service more endpoints, or leave clients their source: "
    "externalTrafficPolicy: Local"
)
"""What to do about a shortage; to be formatted with the address of its endpoint."""


def ports_may_be_scarce() -> bool:
    """Returns whether the whole table has this many entries: with fewer, no ports run out. Reads one small file."""
    try:
        return is_scarce(int(_COUNT.read_text()))
    except (OSError, ValueError):
        return False


def read_port_shortages(
    family: Family, protocol: Protocol, *, stop: Callable[[], bool] = lambda: False
) -> tuple[PortShortage, ...]:
    """Returns where source ports run out, the worst first. Reads the table only if it has this many entries; again, if the kernel is busy.

    stop: called periodically; True ends the walk, with what was seen so far. Raises OSError.
    """
    if protocol not in (Protocol.TCP, Protocol.UDP) or not ports_may_be_scarce():
        return ()
    counted = retry(partial(_count_masqueraded, family, protocol, stop))
    return tuple(
        PortShortage(protocol, unpack_address(source), (unpack_address(address), port), count)
        for (source, address, port), count in counted.most_common()
        if is_scarce(count)
    )


def _count_masqueraded(
    family: Family, protocol: Protocol, stop: Callable[[], bool]
) -> Counter[tuple[bytes, bytes, int]]:
    """Returns how many masqueraded connections each source has to each endpoint and port. Raises OSError."""
    counted: Counter[tuple[bytes, bytes, int]] = Counter()
    with NetlinkSocket(NETLINK_NETFILTER) as netlink, suppress(DumpInterruptedError):
        for datagram in netlink.dump_datagrams(dump_udp(family, of=protocol)):
            for flow in read_flows(family, datagram, wanted=protocol):
                if (source := masquerade_address(family, flow)) is not None:
                    counted[source, flow.reply_source, flow.reply_port] += 1
            if stop():
                break
    return counted
