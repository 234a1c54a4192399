"""Rules that others put into a table of ours, of expressions that none of ours has."""

from collections.abc import Callable

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Fate, Packet
from nodeagent.wire.netlink.nf_tables.expressions import Code, Rule, Unreadable, Verdict

DROP = Verdict(Code.DROP)


def test_a_rule_with_an_unknown_part_is_skipped_and_reported(table: Callable[..., Interpreter]) -> None:
    rules: tuple[Rule, ...] = (
        (Unreadable("counter", b""), Unreadable("synproxy", b""), DROP),
        (Unreadable("log", b""),),
    )
    (outcome,) = table(*rules).outcomes(Packet("10.244.1.5", "10.96.0.10"))
    assert outcome.fate is Fate.UNTOUCHED
    assert [(step.applied, step.unclear) for step in outcome.trace] == [(False, True), (True, False)]
    assert outcome.trace[0].text == "counter, cannot be evaluated: synproxy"
