"""Which step comes next: a table of clusters, those included in which a command was killed."""

import pytest
from msgspec.structs import replace

from nodeagent.cli.migration.found import ClusterState, DaemonSet, Node, Pod
from nodeagent.cli.migration.steps import Step, canary_of, is_done, next_step, steps_until
from tests.unit.cli.migration.cluster import cluster

TABLE = [
    ("nothing was done", cluster(), Step.CANARY),
    ("manifests are applied, no node has the label", cluster(agents="", canary=True), Step.CANARY),
    ("the canary's agent starts", cluster(agents="a", unready=True, canary=True, beside="a"), Step.CANARY),
    ("the canary's agent runs beside kube-proxy", cluster(agents="a", canary=True, beside="a"), Step.CANARY),
    (
        "kube-proxy may leave, and has not",
        cluster(agents="a", canary=True, leaving=True, alone="a"),
        Step.CANARY,
    ),
    (
        "kube-proxy has left the canary, whose agent is not ready",
        cluster(agents="a", unready=True, canary=True, leaving=True, kube_proxy="b", alone="a"),
        Step.CANARY,
    ),
    (
        "the canary stands alone",
        cluster(agents="a", canary=True, leaving=True, kube_proxy="b", alone="a"),
        Step.EVERYWHERE,
    ),
    ("one node still lacks an agent", cluster(agents="a", leaving=True, kube_proxy="b", alone="a"), Step.EVERYWHERE),
    (
        "agents run everywhere beside kube-proxy, none of them ready",
        cluster(agents="ab", unready=True, leaving=True, kube_proxy="b", alone="a"),
        Step.KUBE_PROXY_OUT,
    ),
    ("kube-proxy is on its way out", cluster(agents="ab", out=True, kube_proxy="b", alone="a"), Step.KUBE_PROXY_OUT),
    ("agents are not ready yet", cluster(agents="ab", unready=True, out=True, kube_proxy=""), Step.KUBE_PROXY_OUT),
    ("kube-proxy is out", cluster(agents="ab", out=True, kube_proxy=""), Step.CLEAN),
    ("one node is clean", cluster(agents="ab", out=True, kube_proxy="", removed="a"), Step.CLEAN),
    ("all is done", cluster(agents="ab", out=True, kube_proxy="", removed="ab"), None),
    (
        "all was done, then an agent is lost",
        cluster(agents="a", out=True, kube_proxy="", removed="ab"),
        Step.EVERYWHERE,
    ),
]


@pytest.mark.parametrize(("found", "step"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_next_step_follows_from_the_cluster_alone(found: ClusterState, step: Step | None) -> None:
    assert next_step(found) is step


@pytest.mark.parametrize(
    ("last", "left"),
    [
        (Step.CANARY, ()),
        (Step.EVERYWHERE, (Step.EVERYWHERE,)),
        (Step.CLEAN, (Step.EVERYWHERE, Step.KUBE_PROXY_OUT, Step.CLEAN)),
    ],
)
def test_steps_that_are_done_are_not_done_again(last: Step, left: tuple[Step, ...]) -> None:
    found = cluster(agents="a", canary=True, leaving=True, kube_proxy="b", alone="a")
    assert steps_until(last, found) == left


def test_a_pod_that_ends_or_starts_is_no_agent() -> None:
    for pod in (Pod("x", "b", True, leaving=True), Pod("x", "b", True, runs=False)):
        agents = DaemonSet(pods=(Pod("y", "a", True), pod))
        assert not is_done(Step.EVERYWHERE, replace(cluster(), agents=agents))
    agents = DaemonSet(pods=(Pod("y", "a", True), Pod("x", "b", True)))
    assert is_done(Step.EVERYWHERE, replace(cluster(), agents=agents))


def test_a_canary_of_the_former_template_is_replaced_when_kube_proxy_is_out() -> None:
    agents = DaemonSet(pods=(Pod("y", "a", True, current=False), Pod("x", "b", False)))
    assert next_step(replace(cluster(), agents=agents)) is Step.KUBE_PROXY_OUT
    out = cluster(out=True, kube_proxy="")
    agents = DaemonSet(pods=(Pod("y", "a", True, current=False), Pod("x", "b", True)))
    assert next_step(replace(out, agents=agents)) is Step.KUBE_PROXY_OUT


def test_a_template_that_nobody_has_seen_yet_has_no_pods() -> None:
    agents = DaemonSet(pods=(Pod("y", "a", True), Pod("x", "b", True)), observed=False)
    assert not is_done(Step.EVERYWHERE, replace(cluster(), agents=agents))


def test_windows_nodes_do_not_count() -> None:
    found = cluster(agents="ab", out=True, kube_proxy="", removed="ab")
    assert next_step(replace(found, nodes=(*found.nodes, Node("w", ready=True, system="windows")))) is None


@pytest.mark.parametrize(
    ("found", "wanted", "canary"),
    [
        (cluster(), None, "a"),
        (cluster(), "b", "b"),
        (cluster(), "c", None),
        (cluster(beside="b"), None, "b"),
        (cluster(alone="b"), None, "b"),
    ],
    ids=["the first", "the wanted", "an unknown", "the one begun with", "the one that stands alone"],
)
def test_the_node_that_goes_first(found: ClusterState, wanted: str | None, canary: str | None) -> None:
    assert canary_of(found, wanted) == canary
