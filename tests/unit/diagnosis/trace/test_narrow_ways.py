"""Long packets that vanish between interfaces of different width."""

from nodeagent.model.frontend import Route

from .conftest import Routes
from .test_others_walk import DROP, match, meta
from .test_report import PODS, frontend, hooked, node_with, report

CLIENT = "203.0.113.9"


def test_long_packets_vanish_where_nobody_may_say_that_they_are_too_long() -> None:
    silent = hooked([match(meta("l4proto"), "icmp"), DROP], hook="output")
    node, narrow = node_with(frontend(Route(PODS[:1])), others=(silent,)), Routes(widths={"eth0": 1400})
    reported = report(node, CLIENT, routes=narrow).verdict
    assert reported.startswith("arrives: ")
    says = "packets of 10.244.1.10 above 1400 bytes are lost: eth0 takes no longer ones (cni0: 1500)"
    assert (
        f"; as far as is known: {says}, and the ICMP error about it is stopped: output: inet guard, chain f: "
        in reported
    )
    for unharmed in (
        report(node, CLIENT),
        report(node_with(frontend(Route(PODS[:1]))), CLIENT, routes=narrow),
        report(node, CLIENT, routes=Routes(widths={"eth0": 0})),
        report(node, CLIENT, routes=Routes(widths={"cni0": 1400})),
    ):
        assert "as far as" not in unharmed.verdict
