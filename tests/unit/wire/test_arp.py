"""What asks for an address by ARP, and which packets answer."""

import struct

import pytest

from nodeagent.wire.arp import ArpReply, pack_probe, read_reply

HARDWARE = bytes.fromhex("020000000001")
ANSWER = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, HARDWARE, b"\xc0\x00\x02\x01", bytes(6), bytes(4))


def test_a_probe_names_its_hardware_and_what_it_asks_for_but_no_address_of_its_own() -> None:
    expected = "0001 0800 06 04 0001  020000000001 00000000  000000000000 c0000201"
    assert pack_probe("192.0.2.1", HARDWARE) == bytes.fromhex(expected.replace(" ", ""))


@pytest.mark.parametrize("padding", [b"", bytes(18)], ids=["bare", "padded to the shortest frame"])
def test_an_answer_names_the_host(padding: bytes) -> None:
    assert read_reply(ANSWER + padding) == ArpReply("192.0.2.1", HARDWARE)


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(pack_probe("192.0.2.1", HARDWARE), id="a request"),
        pytest.param(ANSWER[:-1], id="cut off"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\x06" + ANSWER[2:], id="other hardware"),
        pytest.param(ANSWER[:2] + b"\x86\xdd" + ANSWER[4:], id="another protocol"),
    ],
)
def test_other_packets_answer_nothing(packet: bytes) -> None:
    assert read_reply(packet) is None
