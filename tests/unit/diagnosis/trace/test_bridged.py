"""What a trace says of packets that a bridge of the node carries from one of its ports to another."""

import pytest

from nodeagent.diagnosis.trace.routes import Between
from nodeagent.model.frontend import Route

from .conftest import Routes
from .test_others_walk import match, meta, payload
from .test_report import PODS, frontend, hooked, node_with, report


@pytest.mark.parametrize(
    ("between", "arrives"),
    [pytest.param(Between.FILTERED, False, id="bridged"), pytest.param(Between.HERE, True, id="routed")],
)
@pytest.mark.parametrize(
    ("key", "operator", "value"), [("iif", "==", "0"), ("iif", "!=", "cni0"), ("iifname", "!=", "cni0")]
)
def test_rules_see_no_input_interface_in_postrouting_where_a_bridge_carries_the_packet(
    between: Between, arrives: bool, key: str, operator: str, value: str
) -> None:
    asks = match(meta(key), value, operator)
    late = hooked([asks, {"drop": None}], hook="postrouting")
    earlier = hooked([asks, {"drop": None}])

    assert report(node_with(frontend(Route(PODS[:1])), others=(earlier,)), routes=Routes(way_between=between)).arrives
    reported = report(node_with(frontend(Route(PODS[:1])), others=(late,)), routes=Routes(way_between=between))
    assert reported.arrives is arrives


@pytest.mark.parametrize(
    ("rejects", "between", "end"),
    [
        pytest.param({"type": "tcp reset"}, Between.FILTERED, "dropped", id="reset, bridged"),
        pytest.param({"type": "tcp reset"}, Between.HERE, "refused", id="reset, routed"),
        pytest.param({}, Between.FILTERED, "refused", id="ICMP, bridged"),
    ],
)
def test_a_reset_that_a_bridge_sends_back_untranslated_does_not_count(
    rejects: dict[str, str], between: Between, end: str
) -> None:
    guard = hooked([match(payload("tcp", "dport"), 8080), {"reject": rejects}], hook="forward")
    routes = Routes(way_between=between)

    assert report(node_with(frontend(Route(PODS)), others=(guard,)), routes=routes).verdict.startswith(f"{end}: ")
    direct = report(node_with(frontend(Route(PODS)), others=(guard,)), to=PODS[0].address, port=8080, routes=routes)
    assert direct.verdict.startswith("refused: ")


def test_a_packet_that_a_bridge_carries_past_the_rules_meets_none() -> None:
    shut = hooked([{"drop": None}], hook="prerouting", prio=-300)
    node = node_with(frontend(Route(PODS[:1])), others=(shut,))

    assert report(node, to=PODS[0].address, port=8080, routes=Routes(way_between=Between.BRIDGED)).arrives
    assert not report(node, to=PODS[0].address, port=8080, routes=Routes(way_between=Between.FILTERED)).arrives
