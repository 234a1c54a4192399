"""One line over all nodes: the worst first, what is not known never healthy."""

import json

import pytest

from nodeagent.diagnosis.all_nodes.cluster_verdict import cluster_verdict, is_healthy, worst_first
from nodeagent.diagnosis.all_nodes.node_answers import (
    Condition,
    NodeAnswer,
    NodeComplaint,
    Unreadable,
    checked,
    explained,
    problems,
)


def well(node: str) -> NodeAnswer:
    return NodeAnswer(node, Condition.HEALTHY, "healthy: 3 Services")


def unasked(node: str, why: str = "no pod of an agent is on it") -> NodeAnswer:
    return NodeAnswer(node, Condition.UNKNOWN, why)


def broken(node: str, *services: str, condition: Condition = Condition.BROKEN) -> NodeAnswer:
    complaints = tuple(
        NodeComplaint(condition, one, "nobody serves it", "no pod is ready", "start one") for one in services
    )
    return NodeAnswer(node, condition, "broken", complaints)


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([well("a"), well("b")], "healthy: 2 nodes"),
        ([well("a")], "healthy: 1 node"),
        ([], "unknown: no node was asked, because the cluster has no such nodes"),
        (
            [well("a"), unasked("b")],
            "unknown: b of 2 nodes could not be asked, because no pod of an agent is on it",
        ),
        (
            [unasked("a", "it hangs"), unasked("b"), unasked("c"), unasked("d"), unasked("e")],
            "unknown: a, b, c and 2 more of 5 nodes could not be asked, because it hangs (and 1 more)",
        ),
        (
            [well("a"), broken("b", "shop/web")],
            "broken: shop/web: nobody serves it on b, because no pod is ready; start one",
        ),
        (
            [broken("a", "shop/web"), broken("b", "shop/web")],
            "broken: shop/web: nobody serves it on all 2 nodes, because no pod is ready; start one",
        ),
        (
            [broken("a", "x", "shop/web"), broken("b", "shop/web"), well("c"), unasked("d")],
            "broken: shop/web: nobody serves it on 2 of 4 nodes (a, b), because no pod is ready; start one (and 2 more)",
        ),
        (
            [broken("a", "x", condition=Condition.IMPAIRED), broken("b", "x", condition=Condition.IMPAIRED), broken("c", "y")],
            "broken: y: nobody serves it on c, because no pod is ready; start one (and 1 more)",
        ),
        (
            [NodeAnswer("a", Condition.UNHEALTHY, "not healthy: of an older version"), well("b")],
            "not healthy: a says not healthy: of an older version",
        ),
    ],
)  # fmt: skip
def test_the_first_line(answers: list[NodeAnswer], verdict: str) -> None:
    assert cluster_verdict(answers) == verdict
    assert cluster_verdict(list(reversed(answers))) == verdict
    assert is_healthy(answers) is verdict.startswith("healthy")


def test_nodes_are_listed_worst_first() -> None:
    answers = [
        well("a"),
        unasked("b"),
        broken("d", "x"),
        broken("c", "x", condition=Condition.IMPAIRED),
        broken("e", "x"),
    ]
    assert [one.node for one in worst_first(answers)] == ["d", "e", "c", "b", "a"]


FINDING = {"severity": 2, "what": "nobody serves it", "because": "no pod is ready", "do": "start one"}


def test_an_explanation_of_one_service_is_read() -> None:
    said = {
        "verdict": "broken: …",
        "healthy": False,
        "severity": "broken",
        "service": "shop/web",
        "findings": [FINDING],
    }
    answer = explained("a", json.dumps(said | {"of a later version": 1}))
    complaint = NodeComplaint(Condition.BROKEN, "shop/web", "nobody serves it", "no pod is ready", "start one")
    assert answer == NodeAnswer("a", Condition.BROKEN, "broken: …", (complaint,))


def test_of_all_services_the_worst_come_first_and_the_rest_is_counted() -> None:
    listed = [
        {"service": "b", "severity": "impaired", "findings": [FINDING, FINDING]},
        {"service": "c", "severity": "broken", "findings": [FINDING]},
    ]
    said = {"verdict": "not healthy: 9 of 10 Services", "healthy": False, "services": listed, "bad": 9}
    answer = explained("a", json.dumps(said))
    assert (answer.condition, answer.more) == (Condition.BROKEN, 7)
    assert [one.subject for one in answer.complaints] == ["c", "b"]


def test_checks_and_problems_are_read() -> None:
    checks = [
        {"check": "nft", "result": "note", "detail": "old", "cure": ""},
        {"check": "agent", "result": "failed", "detail": "it hangs", "cure": "restart it"},
    ]
    found = checked("a", json.dumps({"verdict": "not healthy: …", "checks": checks}))
    assert found.complaints == (NodeComplaint(Condition.UNHEALTHY, "agent", "", "it hangs", "restart it"),)
    assert checked("a", json.dumps({"verdict": "healthy", "checks": checks[:1]})).condition is Condition.HEALTHY
    listed = [{"subject": "Service x", "reason": "NoPorts", "since": None, "detail": "it has no ports"}]
    assert problems("a", json.dumps(listed)).complaints[0].title == "Service x: NoPorts"
    assert problems("a", "[]").condition is Condition.HEALTHY


@pytest.mark.parametrize("said", ["", "{}", "healthy", '{"healthy": true}', '{"verdict": 1, "healthy": true}'])
def test_an_unreadable_answer_is_not_healthy(said: str) -> None:
    with pytest.raises(Unreadable):
        explained("a", said)
