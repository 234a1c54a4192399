"""docs/semantics.md §4 and §5: which endpoints get a connection. Numbers in the ids are items there."""

import pytest

from nodeagent.model.frontend import Backend, Route, Unserved
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.select import Policies, choose_routes, cluster_route, local_route, narrow_by_topology
from nodeagent.proxy.translate.service_endpoints import Candidate


def endpoint(text: str) -> Candidate:
    """``10.0.0.1 local unready zones=a,b nodes=here``: ready, serving, remote and without hints unless said."""
    address, *words = text.split()
    hints = {word.partition("=")[0]: tuple(word.partition("=")[2].split(",")) for word in words if "=" in word}
    terminating = "terminating" in words
    return Candidate(
        Backend(address, 80, "local" in words),
        ready=not (terminating or "unready" in words),
        serving="dead" not in words,
        terminating=terminating,
        zones=hints.get("zones", ()),
        nodes=hints.get("nodes", ()),
    )


def addresses(route: Route) -> str:
    return " ".join(sorted(backend.address for backend in route.backends))


@pytest.mark.parametrize(
    ("endpoints", "cluster", "local"),
    [
        pytest.param(["a", "b local"], "a b", "b", id="29-30-ready"),
        pytest.param(["a", "b local terminating"], "a", "b", id="30-fallbacks-are-independent"),
        pytest.param(["a terminating", "b local"], "b", "b", id="29-never-a-mix"),
        pytest.param(["a terminating", "b local terminating"], "a b", "b", id="29-30-all-terminating"),
        pytest.param(["a terminating dead", "b terminating"], "b", "", id="29-terminating-must-serve"),
        pytest.param(["a unready", "b local unready"], "", "", id="31-unready"),
        pytest.param(["a terminating zones=zone-b", "b terminating zones=zone-a"], "a b", "", id="29-no-topology"),
        pytest.param(["a local zones=zone-b", "b zones=zone-a"], "b", "a", id="30-37-local-ignores-hints"),
        pytest.param([], "", "", id="no-endpoints"),
    ],
)
def test_ready_endpoints_or_else_those_that_still_serve(
    endpoints: list[str], cluster: str, local: str, context: Context
) -> None:
    candidates = [endpoint(text) for text in endpoints]
    assert addresses(cluster_route(candidates, context)) == cluster
    assert addresses(local_route(candidates, Unserved.DROP)) == local


@pytest.mark.parametrize(
    ("endpoints", "chosen"),
    [
        pytest.param(["a zones=zone-a", "b zones=zone-b"], "a", id="35b-zone"),
        pytest.param(["a zones=zone-a,zone-b", "b zones=zone-b,zone-a", "c zones=zone-c"], "a b", id="36-membership"),
        pytest.param(["a zones=zone-a", "b"], "a b", id="36-one-without-a-hint-disables"),
        pytest.param(["a zones=zone-c", "b zones=zone-b"], "a b", id="36-none-for-this-zone"),
        pytest.param(["a nodes=here zones=zone-a", "b nodes=there zones=zone-a"], "a", id="35a-node"),
        pytest.param(["a nodes=there zones=zone-a", "b nodes=x zones=zone-b"], "a", id="36-node-falls-back-to-zone"),
        pytest.param(["a nodes=here zones=zone-a", "b zones=zone-a", "c zones=zone-b"], "a b", id="36-half-node-hints"),
        pytest.param(["a nodes=here", "b zones=zone-a"], "a b", id="36-neither-mode-complete"),
        pytest.param(["a nodes=here,there", "b nodes=there"], "a", id="36-several-nodes"),
    ],
)
def test_topology_hints_apply_only_when_complete_and_naming_us(
    endpoints: list[str], chosen: str, context: Context
) -> None:
    found = narrow_by_topology([endpoint(text) for text in endpoints], context)
    assert " ".join(candidate.backend.address for candidate in found) == chosen


def test_36_an_unready_endpoint_without_hint_does_not_disable_hints(context: Context) -> None:
    candidates = [endpoint("a zones=zone-a"), endpoint("b zones=zone-b"), endpoint("c unready")]
    assert addresses(cluster_route(candidates, context)) == "a"


@pytest.mark.parametrize("zone", [None, ""])
def test_36_a_node_without_zone_ignores_zone_hints(zone: str | None) -> None:
    nowhere = Context(node_name="here", zone=zone)
    assert len(narrow_by_topology([endpoint("a zones=zone-a"), endpoint("b zones=zone-b")], nowhere)) == 2


@pytest.mark.parametrize(
    ("endpoints", "verdict"),
    [
        pytest.param([], Unserved.REFUSE, id="nobody-anywhere"),
        pytest.param(["a"], Unserved.DROP, id="served-elsewhere"),
        pytest.param(["a terminating"], Unserved.DROP, id="31-served-elsewhere-by-a-terminating-one"),
        pytest.param(["a unready", "b local unready"], Unserved.REFUSE, id="31-unready-counts-as-none"),
    ],
)
def test_an_empty_local_list_drops_while_others_serve_and_refuses_otherwise(
    endpoints: list[str], verdict: Unserved, context: Context
) -> None:
    routes = choose_routes([endpoint(text) for text in endpoints], Policies(True, True), context)
    assert routes.internal.backends == routes.external.backends == ()
    assert routes.internal.otherwise is routes.external.otherwise is verdict
    assert routes.short_circuit is not None
    assert routes.short_circuit.otherwise is Unserved.REFUSE
