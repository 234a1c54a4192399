"""What is read from the objects of a real cluster (`daemonset_update.json`): a DaemonSet whose pods are being replaced."""

import json
from pathlib import Path

from nodeagent.cli.migration.found import ClusterState, DaemonSet, Document, Node, daemonset_of
from nodeagent.cli.migration.steps import unready

ITEMS: list[Document] = json.loads((Path(__file__).parent / "daemonset_update.json").read_text())["items"]
OLD, NEW = "node-2", "node-1"


def of_kind(kind: str) -> list[Document]:
    return [item for item in ITEMS if item["kind"] == kind]


def found(revisions: list[Document], pods: list[Document]) -> DaemonSet:
    daemonset = daemonset_of(of_kind("DaemonSet")[0], pods, revisions)
    assert daemonset is not None
    return daemonset


def test_pods_of_the_newest_revision_are_current_and_others_leave() -> None:
    pods = {pod.node: pod for pod in found(of_kind("ControllerRevision"), of_kind("Pod")).pods}
    assert (pods[NEW].current, pods[NEW].ready, pods[NEW].leaving) == (True, True, False)
    assert (pods[OLD].current, pods[OLD].ready, pods[OLD].leaving) == (False, False, True)


def test_nodes_with_a_ready_pod_of_the_present_template_are_ready() -> None:
    nodes = tuple(Node(name, ready=True) for name in (NEW, OLD))
    state = ClusterState(nodes, agents=found(of_kind("ControllerRevision"), of_kind("Pod")))
    assert unready(state, state.names) == (OLD,)


def test_no_pod_is_current_before_the_controller_has_written_the_revision() -> None:
    assert not any(pod.current for pod in found([], of_kind("Pod")).pods)


def test_pods_and_revisions_of_another_daemonset_do_not_count() -> None:
    others = json.loads(json.dumps(ITEMS).replace('"name": "nodeagent"', '"name": "another"'))
    by_kind = {kind: [item for item in others if item["kind"] == kind] for kind in ("Pod", "ControllerRevision")}
    assert found(of_kind("ControllerRevision"), by_kind["Pod"]).pods == ()
    assert not any(pod.current for pod in found(by_kind["ControllerRevision"], of_kind("Pod")).pods)
