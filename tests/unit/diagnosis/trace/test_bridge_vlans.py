"""Bridges that filter by VLAN: what is said of recorded answers of a kernel is what packets did there.

tests/contract/recordings/bridge-vlans.json was made in a virtual machine with Debian's kernel 6.1; the kernel of this machine may have no
VLAN filtering.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.diagnosis.checks.finding import Result
from nodeagent.diagnosis.checks.foreign_programs import vlan_findings
from nodeagent.diagnosis.trace.kernel_bridges import Bridges
from nodeagent.wire.netlink.bridges import filters_vlans, get_vlans, read_vlans
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.rtnetlink import Link

RECORDED = json.loads((Path(__file__).parents[3] / "contract" / "recordings" / "bridge-vlans.json").read_text())
TRIES = {one["tried"]: one for one in RECORDED["tries"]}
WHY = {
    "port-without-vlans": "VLAN 1, in which br0 sends, is not allowed at p1, and the bridge br0 filters by VLAN",
    "port-in-10": "VLAN 1, in which br0 sends, is not allowed at p1, and the bridge br0 filters by VLAN",
    "port-in-10-bridge-also-10": "VLAN 1, in which br0 sends, is not allowed at p1, and the bridge br0 filters by VLAN",
    "port-pvid-10-allows-1": "frames of p1 reach br0 with the tag of VLAN 10, which br0 itself does not take off",
    "bridge-without-1": "br0 has no VLAN for frames without a tag, and the bridge br0 filters by VLAN",
    "bridge-1-tagged-no-pvid": "br0 has no VLAN for frames without a tag, and the bridge br0 filters by VLAN",
}
UNSAID = {"port-1-tagged"}
"""The pod gets frames with a tag; whether it takes them is not known outside of it."""


class RecordedKernel:
    """Answers as the kernel did."""

    def __init__(self, vlans: dict[str, str], link: str) -> None:
        self._vlans = [bytes.fromhex(one) for one in vlans.values()]
        self._link = bytes.fromhex(link)
        self.asked: list[Request] = []

    def ask(self, request: Request) -> memoryview:
        self.asked.append(request)
        return memoryview(self._link)

    def dump(self, request: Request) -> Iterator[memoryview]:
        self.asked.append(request)
        assert request == get_vlans()
        yield from (memoryview(one) for one in self._vlans)


def ports_apart(tried: dict[str, Any], link: str = RECORDED["filtering"]) -> dict[str, tuple[str, str]]:
    """What is said of the ports of br0."""
    numbers = {name: struct.unpack_from("=BxHi", bytes.fromhex(one))[2] for name, one in tried["vlans"].items()}
    bridge = Link(numbers["br0"], "br0", "bridge", True, True, True, "", 0)
    kernel: Any = RecordedKernel(tried["vlans"], link)
    return Bridges(kernel).barred_ports(bridge, {name: numbers[name] for name in ("p1", "p2")})


@pytest.mark.parametrize("name", TRIES)
def test_the_prediction_equals_what_packets_did(name: str) -> None:
    apart = ports_apart(TRIES[name])
    assert ("p1" not in apart) is (TRIES[name]["host"] or name in UNSAID)
    assert apart.get("p1", ("",))[0] == WHY.get(name, "")


def test_the_other_port_is_apart_only_with_the_bridge() -> None:
    with_it = {name for name, one in TRIES.items() if "p2" in ports_apart(one)}
    assert with_it == {"bridge-without-1", "bridge-1-tagged-no-pvid"}


@pytest.mark.parametrize("name", TRIES)
def test_a_bridge_that_does_not_filter_keeps_nothing_apart(name: str) -> None:
    assert ports_apart(TRIES[name], RECORDED["notFiltering"]) == {}


def test_the_recorded_answers_are_read() -> None:
    assert filters_vlans(memoryview(bytes.fromhex(RECORDED["filtering"])))
    assert not filters_vlans(memoryview(bytes.fromhex(RECORDED["notFiltering"])))
    found = read_vlans(memoryview(bytes.fromhex(TRIES["with-range"]["vlans"]["p1"])))
    assert (set(found.allowed), set(found.untagged), found.own) == ({1, 5, 6, 7}, {1}, 1)


def test_check_has_a_note() -> None:
    (note,) = vlan_findings(ports_apart(TRIES["bridge-without-1"]))
    assert note.result is Result.NOTE
    assert note.detail.endswith(
        "br0 has no VLAN for frames without a tag, and the bridge br0 filters by VLAN (and 1 more port)"
    )
    assert note.cure == "bridge vlan add dev br0 vid NUMBER pvid untagged self"
    assert list(vlan_findings({})) == []
