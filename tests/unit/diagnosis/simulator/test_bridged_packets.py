"""What rules see of a packet that a bridge carries from one of its ports to another, where br_netfilter brings it to them."""

from collections.abc import Callable

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Fate, Packet
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.wire.netlink.nf_tables.expressions import Cmp, Code, Meta, MetaKey, Rule, Verdict, native_u32

BRIDGES = {"cni0": ("10.244.1.5", "10.244.1.10")}
DROP = Verdict(Code.DROP)


@pytest.mark.parametrize(
    ("packet", "iif", "oif"),
    [
        pytest.param(Packet("10.244.1.5", "10.244.1.10", iif="cni0"), "", "cni0", id="between two ports"),
        pytest.param(Packet("10.244.1.5", "10.244.2.10", iif="cni0"), "cni0", "", id="from a port to elsewhere"),
        pytest.param(Packet("10.244.2.10", "10.244.1.10", iif="eth0"), "eth0", "cni0", id="from elsewhere to a port"),
        pytest.param(Packet("192.168.0.2", "10.244.1.10", iif=None), "", "cni0", id="from the node to a port"),
    ],
)
def test_its_interfaces_in_postrouting(table: Callable[..., Interpreter], packet: Packet, iif: str, oif: str) -> None:
    def drops(*rule: object) -> bool:
        (outcome,) = table((*rule, DROP), hook=HookNumber.POSTROUTING, bridges=BRIDGES).outcomes(packet)
        return outcome.fate is Fate.DROPPED

    for key, name in ((MetaKey.IIFNAME, iif), (MetaKey.OIFNAME, oif)):
        assert drops(Meta(0, key), Cmp(0, name.encode().ljust(16, b"\0")))
    assert drops(Meta(0, MetaKey.IIF), Cmp(0, native_u32(0))) is (not iif)


def test_a_bridged_packet_has_the_bridge_as_its_input(table: Callable[..., Interpreter]) -> None:
    rule: Rule = (Meta(0, MetaKey.IIFNAME), Cmp(0, b"cni0".ljust(16, b"\0")), DROP)
    (outcome,) = table(rule, bridges=BRIDGES).outcomes(Packet("10.244.1.5", "10.244.1.10", iif="cni0"))
    assert outcome.fate is Fate.DROPPED
