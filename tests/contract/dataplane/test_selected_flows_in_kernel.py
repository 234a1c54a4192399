"""The kernel itself selects which flows a dump has: of a Service with very many, a trace reads those of one client."""

import socket

import pytest

from nodeagent.model.addresses import Family, pack_address
from nodeagent.wire.netlink.conntrack import client_of, dump_udp, read_flows
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER
from tests.contract.dataplane.tracked_flows import POD, POD6, VIP, VIP6, Namespace, given_flows, track

pytestmark = pytest.mark.kernel

ADDRESSES = {
    Family.IPV4: ("10.0.0.1", "10.0.0.2", VIP, POD),
    Family.IPV6: ("fd00::1", "fd00::2", VIP6, POD6),
}


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("protocol", [socket.IPPROTO_UDP, socket.IPPROTO_TCP], ids=["UDP", "TCP"])
def test_a_dump_for_one_client_has_its_flows(namespace: Namespace, family: Family, protocol: int) -> None:
    client, other, place, pod = ADDRESSES[family]
    given_flows(
        namespace,
        [
            track((client, 1), (place, 53), pod, protocol=protocol),
            track((client, 2), (place, 54), pod, protocol=protocol),
            track((other, 3), (place, 53), pod, protocol=protocol),
        ],
    )

    def clients(source: bytes | None) -> set[tuple[bytes, int] | None]:
        request = dump_udp(family, pack_address(place), 53, source=source, of=protocol)
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            return {
                client_of(family, flow)
                for datagram in netlink.dump_datagrams(request)
                for flow in read_flows(family, datagram, wanted=protocol)
            }

    ours, others = (pack_address(client), 1), (pack_address(other), 3)
    assert namespace.run(lambda: clients(None)) == {ours, others}
    # It does not select by IPv6 addresses, so that the reader of such a dump has to.
    expected = {ours} if family is Family.IPV4 else {ours, others}
    assert namespace.run(lambda: clients(pack_address(client))) == expected
