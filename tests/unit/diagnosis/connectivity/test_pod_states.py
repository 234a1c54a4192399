"""Pods that run, that may run, and that never will."""

from typing import Any

import pytest

from nodeagent.diagnosis.connectivity.objects import ROLE, ROLES
from nodeagent.diagnosis.connectivity.pod_states import missing_pods, why_never_ready


def pod(role: str, node: str = "n1", *, ready: bool = True, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": f"{role}-x", "labels": {ROLE: role}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running" if ready else "Pending", "conditions": conditions, **status},
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (waiting("ImagePullBackOff", "Back-off pulling image"), "ImagePullBackOff: Back-off pulling image"),
        (waiting("InvalidImageName"), "InvalidImageName: no message"),
        (waiting("ContainerCreating"), ""),
        ({}, ""),
    ],
    ids=["no such image", "no name of an image", "about to run", "nothing said"],
)
def test_a_pod_that_will_never_run_is_named(status: dict[str, Any], said: str) -> None:
    found = why_never_ready([pod("server"), pod("client", ready=False, **status)])

    assert found == (f"pod client-x on n1: {said}" if said else "")


def test_nothing_lacks_when_each_node_has_each_role() -> None:
    assert missing_pods([pod(role, node) for role in ROLES for node in ("n1", "n2")], ["n1", "n2"]) == []


def test_missing_pods_and_pods_that_are_not_ready_count_as_missing() -> None:
    pods = [pod("server"), pod("client", ready=False, **waiting("ContainerCreating"))]

    assert missing_pods(pods, ["n1"]) == ["pod client-x on n1: ContainerCreating", "no pod host on n1"]


def test_the_cluster_says_why_a_pod_is_not_ready() -> None:
    unready = pod("client", ready=False, conditions=[{"type": "Ready", "status": "False", "message": "no network"}])

    assert missing_pods([pod("server"), unready, pod("host")], ["n1"]) == ["pod client-x on n1: no network"]
