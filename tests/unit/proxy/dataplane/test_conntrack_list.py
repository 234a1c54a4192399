"""What the kernel's list of flows says. The lines are of Linux 6.18 and, with counts of packets, of 6.1."""

import pytest

from nodeagent.model.addresses import Family, Protocol, unpack_address
from nodeagent.proxy.dataplane.conntrack_list import listed_flows

UDP = (
    "ipv4     2 udp      17 29 src=10.0.0.1 dst=10.96.0.10 sport=5000 dport=53 [UNREPLIED]"
    " src=10.244.1.2 dst=10.0.0.1 sport=5353 dport=5000 mark=0 zone=0 use=2"
)
COUNTED = (
    "ipv4     2 udp      17 100 src=10.0.0.1 dst=10.96.0.10 sport=5001 dport=53 packets=7 bytes=420"
    " src=10.96.0.10 dst=10.0.0.1 sport=53 dport=5001 packets=1 bytes=60 [ASSURED] mark=0 secctx=null use=1"
)
TCP = (
    "ipv6     10 tcp      6 431999 ESTABLISHED src=fd00:0000:0000:0000:0000:0000:0000:0001"
    " dst=fd00:0096:0000:0000:0000:0000:0000:0001 sport=4000 dport=80"
    " src=fd00:0244:0000:0000:0000:0000:0000:0005 dst=fd00:0000:0000:0000:0000:0000:0000:0001 sport=8080 dport=4000"
    " [ASSURED] mark=0 zone=0 use=2"
)
OFFLOADED = TCP.replace(" ESTABLISHED", "").replace("[ASSURED]", "[OFFLOAD]").replace("431999 ", "")
PING = (
    "ipv4     2 icmp     1 29 src=10.0.0.1 dst=10.96.0.10 type=8 code=0 id=7"
    " src=10.96.0.10 dst=10.0.0.1 type=0 code=0 id=7 mark=0 zone=0 use=2"
)


def ends(text: str, family: Family, protocol: Protocol) -> list[tuple[str, int, str, int]]:
    return [
        (unpack_address(flow.destination), flow.port, unpack_address(flow.reply_source), flow.reply_port)
        for flow in listed_flows(text, family, protocol)
    ]


@pytest.mark.parametrize(
    ("line", "family", "protocol", "end"),
    [
        (UDP, Family.IPV4, Protocol.UDP, ("10.96.0.10", 53, "10.244.1.2", 5353)),
        (COUNTED, Family.IPV4, Protocol.UDP, ("10.96.0.10", 53, "10.96.0.10", 53)),
        (TCP, Family.IPV6, Protocol.TCP, ("fd00:96::1", 80, "fd00:244::5", 8080)),
        (OFFLOADED, Family.IPV6, Protocol.TCP, ("fd00:96::1", 80, "fd00:244::5", 8080)),
    ],
    ids=["UDP", "with counts", "TCP", "offloaded"],
)
def test_a_flow_is_found_by_its_family_and_protocol(
    line: str, family: Family, protocol: Protocol, end: tuple[str, int, str, int]
) -> None:
    text = f"{UDP}\n{COUNTED}\n{TCP}\n{OFFLOADED}\n{PING}\n"
    assert end in ends(text, family, protocol)
    assert [
        (other, kind) for other in Family for kind in (Protocol.TCP, Protocol.UDP) if ends(line, other, kind) == [end]
    ] == [(family, protocol)]


def test_a_ping_has_no_ports() -> None:
    assert listed_flows(PING, Family.IPV4, 1) == []


@pytest.mark.parametrize("zone", ["zone=7", "zone-orig=1", "zone-reply=12"])
def test_a_flow_in_a_zone_belongs_to_somebody_else(zone: str) -> None:
    assert len(ends(UDP, Family.IPV4, Protocol.UDP)) == 1
    assert ends(UDP.replace("zone=0", zone), Family.IPV4, Protocol.UDP) == []
