"""The first packet of a connection is not established, and a rule that offloads decides nothing about it."""

from collections.abc import Callable

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import TCP, Fate, Packet
from nodeagent.wire.netlink.nf_tables.expressions import Cmp, Ct, CtKey, FlowOffload, Mask, Rule, native_u32

WEB = Packet("203.0.113.2", "10.96.0.10", TCP, 80)


def test_a_new_connection_is_of_the_original_direction_and_not_established(table: Callable[..., Interpreter]) -> None:
    established: Rule = (Ct(0, CtKey.STATE), Mask(0, native_u32(2)), Cmp(0, native_u32(0), invert=True))
    original: Rule = (Ct(0, CtKey.DIRECTION), Cmp(0, b"\0"), FlowOffload("flows"))

    (outcome,) = table(established, original).outcomes(WEB)

    assert outcome.fate is Fate.UNTOUCHED
    assert [str(step) for step in outcome.trace] == [
        "✗ base 1: ct state & 0x2 != 0x0 (is 0x0)",
        "  base 2: ct direction == 0x0, flow add @flows",
    ]
