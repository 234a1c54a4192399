"""Long packets that vanish between interfaces of different width."""

import pytest

from nodeagent.model.frontend import Route

from .conftest import Routes
from .test_others_walk import DROP, match, meta
from .test_report import PODS, frontend, hooked, node_with, report

CLIENT = "203.0.113.9"


@pytest.mark.parametrize(
    ("widths", "says"),
    [
        ({"cni0": 1400}, "packets of 203.0.113.9 above 1400 bytes are lost: cni0 takes no longer ones (eth0: 1500)"),
        ({"eth0": 1400}, "packets of 10.244.1.10 above 1400 bytes are lost: eth0 takes no longer ones (cni0: 1500)"),
    ],
)
def test_long_packets_vanish_where_nobody_may_say_that_they_are_too_long(widths: dict[str, int], says: str) -> None:
    silent = hooked([match(meta("l4proto"), "icmp"), DROP], hook="output")
    node = node_with(frontend(Route(PODS[:1])), others=(silent,))
    told = report(node, CLIENT, routes=Routes(widths=widths)).verdict
    assert told.startswith("arrives: ")
    assert f"; as far as is known: {says}, and what tells it so is stopped: output: inet guard, chain f: " in told
    for unharmed in (
        report(node, CLIENT),
        report(node_with(frontend(Route(PODS[:1]))), CLIENT, routes=Routes(widths=widths)),
        report(node, CLIENT, routes=Routes(widths={"eth0": 0})),
    ):
        assert "as far as" not in unharmed.verdict
