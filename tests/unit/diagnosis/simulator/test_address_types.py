"""What `fib … type` loads: whether an address is the node's, or that of the interface by which a packet leaves."""

import pytest

from nodeagent.diagnosis.simulator.packet import TCP, Fate, Packet
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.wire.netlink.nf_tables.expressions import Cmp, Code, FibType, Rule, Verdict, native_u32
from tests.unit.diagnosis.simulator.conftest import BuildTable

DROP = Verdict(Code.DROP)
WEB = Packet("203.0.113.2", "10.96.0.10", TCP, 80)


@pytest.mark.parametrize(
    ("source", "address", "local"),
    [
        pytest.param(True, "203.0.113.2", True, id="source is ours"),
        pytest.param(True, "10.96.0.10", False, id="source is not ours"),
        pytest.param(False, "10.96.0.10", True, id="destination is ours"),
        pytest.param(False, "203.0.113.2", False, id="destination is not ours"),
    ],
)
def test_fib_type_is_local_for_the_nodes_addresses(table: BuildTable, source: bool, address: str, local: bool) -> None:
    rule: Rule = (FibType(0, source=source), Cmp(0, native_u32(2)), DROP)
    (outcome,) = table(rule, local=(address,)).outcomes(WEB)
    assert (outcome.fate is Fate.DROPPED) is local


@pytest.mark.parametrize(
    ("source", "local"),
    [
        pytest.param("203.0.113.2", True, id="of the interface by which it leaves"),
        pytest.param("10.244.1.1", False, id="of another interface"),
        pytest.param("203.0.113.9", False, id="not ours"),
    ],
)
def test_fib_type_at_the_output_is_local_for_addresses_of_this_interface(
    table: BuildTable, source: str, local: bool
) -> None:
    rule: Rule = (FibType(0, source=True, at_output=True), Cmp(0, native_u32(2)), DROP)
    at_interface = {"": ["203.0.113.2"], "cni0": ["10.244.1.1"]}
    interpreter = table(
        rule, local=("203.0.113.2", "10.244.1.1"), hook=HookNumber.POSTROUTING, at_interface=at_interface
    )
    (outcome,) = interpreter.outcomes(Packet(source, "198.51.100.7", iif=None))
    assert (outcome.fate is Fate.DROPPED) is local
    assert outcome.trace[0].text.startswith("fib saddr . oif type == local")
