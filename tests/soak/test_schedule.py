"""Schedules: the same from a seed, and shortened to what fails; what Services offer."""

import itertools
from collections.abc import Sequence

import pytest

from tests.soak.breaking import Breaker
from tests.soak.offers import PodState, headless_spec, name_answer, spec_of, targets, views_of, without_nulls
from tests.soak.records import FRONTENDS, NO_ADDRESS, NO_NAME
from tests.soak.schedule import KINDS, Shape, schedule
from tests.soak.shrink import shrink

SHAPE = Shape(("node-1", "node-2", "node-3"), clocks=True, disk=True, etcd=True)
NODES = {"node-1": ("192.168.0.11",), "node-2": ("192.168.0.12",)}
PODS = {
    "one": PodState("node-1", ("10.244.1.10", "fd00::1"), "a"),
    "two": PodState("node-2", ("10.244.2.10", "fd00::2"), "b"),
    "gone": PodState("node-2", ("10.244.2.11", "fd00::3"), "a", joined=False),
    "new": PodState("node-2", ("10.244.2.12", "fd00::4"), "a", ready=False),
    "ending": PodState("node-1", ("10.244.1.11", "fd00::5"), "a", terminating=True),
}


def test_a_seed_gives_the_same_steps_again_and_another_gives_others() -> None:
    assert schedule("a", 60, SHAPE) == schedule("a", 60, SHAPE)
    assert schedule("a", 60, SHAPE) != schedule("b", 60, SHAPE)


def test_steps_last_as_long_as_was_asked_for_and_every_kind_comes() -> None:
    steps = schedule("a", 3600, SHAPE)
    assert 3590 < sum(step.pause for step in steps) <= 3600
    assert {step.kind for step in steps} == KINDS.keys()
    assert all(hasattr(Breaker, "_" + kind.replace("-", "_")) for kind in KINDS)


def test_a_quick_run_has_nothing_that_takes_long_and_no_lab_gets_what_it_cannot_do() -> None:
    quick = {step.kind for step in schedule("a", 3600, Shape(("node-1",), quick=True))}
    assert quick == {name for name, kind in KINDS.items() if not kind.slow} - {"clock", "disk"}


@pytest.mark.parametrize("cause", [{3}, {3, 17}, {0, 9, 19}, {19}, set(range(20))], ids=str)
def test_the_shortest_list_that_fails_is_found(cause: set[int]) -> None:
    tried: list[Sequence[int]] = []

    def fails(steps: Sequence[int]) -> bool:
        tried.append(steps)
        return cause <= set(steps)

    assert shrink(range(20), fails, lambda: True) == sorted(cause)
    assert len(tried) < 400


def test_when_the_time_is_over_what_was_found_so_far_is_returned() -> None:
    trials = itertools.count()
    found = shrink(range(64), lambda steps: 5 in steps, lambda: next(trials) < 6)
    assert 5 in found
    assert 1 < len(found) < 64


def test_every_kind_of_service_comes_and_a_patch_leaves_nothing_of_the_one_before() -> None:
    specs = [spec_of(choice) for choice in range(200)]
    assert {spec["type"] for spec in specs} == {"ClusterIP", "NodePort", "LoadBalancer"}
    assert {spec["sessionAffinity"] for spec in specs} == {"ClientIP", "None"}
    assert len({tuple(spec) for spec in specs}) == 1, "each has every field"
    assert without_nulls({"a": None, "b": {"c": None, "d": 1}}) == {"b": {"d": 1}}


def views(policy: str, group: str | None = None) -> dict[str, set[str]]:
    service = {
        "metadata": {"name": "shop"},
        "spec": {
            "clusterIP": "10.96.0.1",
            "selector": {"app": "echo", **({"group": group} if group else {})},
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}],
            "internalTrafficPolicy": policy,
            "externalTrafficPolicy": policy,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    }
    assert len(list(targets(service, NODES))) == 4
    found: dict[str, set[str]] = {}
    every = [one for one in views_of(service, PODS, NODES) if one[0] != "shop#"]
    for view, pod in (one for one in every if one[0] != FRONTENDS):
        found.setdefault(view, set()).add(pod)
    assert {pod for view, pod in every if view == FRONTENDS} >= found.keys()
    return found


def test_a_frontend_has_the_ready_pods_that_its_policy_admits() -> None:
    everywhere = views("Cluster")
    assert set(everywhere) == {
        *(f"10.96.0.1:80@{node}" for node in NODES),
        *(f"198.51.100.1:80@{node}" for node in NODES),
        "192.168.0.11:30080@node-1",
        "192.168.0.12:30080@node-2",
    }
    assert all(pods == {"one", "two"} for pods in everywhere.values())
    assert views("Local")["10.96.0.1:80@node-1"] == {"one"}
    assert views("Local")["192.168.0.12:30080@node-2"] == {"two"}
    assert views("Cluster", "b")["10.96.0.1:80@node-1"] == {"two"}


def test_pods_that_terminate_answer_only_where_no_other_does() -> None:
    ending = {name: pod for name, pod in PODS.items() if name == "ending"}
    spec = {"clusterIP": "10.96.0.1", "selector": {}, "ports": [{"port": 80, "protocol": "TCP"}]}
    found = views_of({"metadata": {"name": "shop"}, "spec": spec}, ending, NODES)
    assert {pod for view, pod in found if view != FRONTENDS} == {"ending"}


def test_a_name_has_the_address_of_its_service_or_those_of_its_pods() -> None:
    assert name_answer(None, PODS) == NO_NAME
    assert name_answer({"spec": {"clusterIPs": ["fd00::9", "10.96.0.1"]}}, PODS) == "10.96.0.1"
    headless = {"spec": without_nulls(headless_spec(1)) | {"selector": {"app": "echo"}}}
    assert name_answer(headless, PODS) == "10.244.1.10 10.244.2.10"
    assert name_answer(headless, {}) == NO_ADDRESS
