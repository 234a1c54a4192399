"""What is said of programs at the ports of a bridge that has not learned the port of a host."""

import pytest

from nodeagent.diagnosis.trace.link_programs import LinkProgram, note_of_unlearned

FILTER = LinkProgram("bpf", "veth1", "ingress")
OTHER = LinkProgram("7", "veth2", "egress", "tcx")


@pytest.mark.parametrize(
    ("programs", "hosts", "ends"),
    [
        ([FILTER], ["10.0.0.1"], "the port of 10.0.0.1"),
        ([FILTER, OTHER], ["10.0.0.1"], "the port of 10.0.0.1; its ports have 1 more"),
        ([FILTER], ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "the port of 10.0.0.1, 10.0.0.2, 10.0.0.3"),
        ([FILTER], ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"], "the port of 10.0.0.1, 10.0.0.2, 10.0.0.3, …"),
    ],
)
def test_the_first_program_and_three_hosts_are_named(programs: list[LinkProgram], hosts: list[str], ends: str) -> None:
    said = note_of_unlearned(programs, "cni0", hosts)
    assert said == (
        "the tc filter bpf at veth1 (ingress) may drop or change it: not followed: see tc filter show dev veth1 ingress; "
        f"the bridge cni0 has not learned {ends}"
    )
