"""IP headers as they come from the wire."""

import pytest

from nodeagent.lab.net.ping import echo, internet_checksum
from nodeagent.model.addresses import Family
from tests.harness.sniffing import ETH_P_IP, ETH_P_IPV6, Packet, packet_of

IPV4_UDP = bytes.fromhex("450000200000400040110000" + "0af4010a" + "0a600001" + "b1e60050" + "000c0000" + "3f3f3f3f")
IPV4_OPTIONS = bytes.fromhex("460000200000400040060000" + "0af4010a" + "0a600001" + "01010101" + "b1e60050")
IPV6_TCP = bytes.fromhex(
    "600000000004063f" + "fd000244000100000000000000000001" + "20010db8000000000000000000000002" + "0050b1e6"
)
IPV6_ND = bytes.fromhex("6000000000043aff" + "fe80" + "00" * 13 + "01" + "ff02" + "00" * 13 + "01" + "87000000")


@pytest.mark.parametrize(
    ("data", "ethertype", "packet"),
    [
        pytest.param(
            IPV4_UDP, ETH_P_IP, Packet("eth0", True, "10.244.1.10", "10.96.0.1", 17, 45542, 80, 32), id="UDP over IPv4"
        ),
        pytest.param(
            IPV4_OPTIONS, ETH_P_IP, Packet("eth0", True, "10.244.1.10", "10.96.0.1", 6, 45542, 80, 28), id="options"
        ),
        pytest.param(
            IPV6_TCP, ETH_P_IPV6, Packet("eth0", True, "fd00:244:1::1", "2001:db8::2", 6, 80, 45542, 44), id="TCP, IPv6"
        ),
        pytest.param(IPV6_ND, ETH_P_IPV6, Packet("eth0", True, "fe80::1", "ff02::1", 58, 0, 0, 44), id="no ports"),
        pytest.param(IPV4_UDP[:22], ETH_P_IP, Packet("eth0", True, "10.244.1.10", "10.96.0.1", 17, 0, 0, 22), id="cut"),
        pytest.param(IPV4_UDP[:19], ETH_P_IP, None, id="no header"),
        pytest.param(IPV4_UDP, 0x0806, None, id="ARP"),
    ],
)
def test_a_packet_is_read_from_its_header(data: bytes, ethertype: int, packet: Packet | None) -> None:
    assert packet_of(data, "eth0", ethertype, outgoing=True) == packet


def test_an_echo_request_carries_a_right_checksum() -> None:
    assert internet_checksum(echo(Family.IPV4, 4711, 3)) == 0
    assert echo(Family.IPV6, 4711, 3)[:4] == b"\x80\0\0\0"
