"""Whether the Node object lets load balancers send traffic here, and how the store knows that it is gone."""

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Node, NodeSpec, ObjectMeta, Taint
from nodeagent.proxy.observe.node_eligibility import NodeEligibility, is_node_eligible
from nodeagent.proxy.source.object_store import ClusterStore

NODE = Node(ObjectMeta(name="n1", uid="u1"))


def tainted(*taints: Taint) -> Node:
    return Node(NODE.metadata, NodeSpec(taints=taints))


@pytest.mark.parametrize(
    ("node", "gone", "eligible"),
    [
        pytest.param(NODE, False, True, id="an ordinary node"),
        pytest.param(None, False, True, id="not received yet"),
        pytest.param(None, True, False, id="unknown to the API server"),
        pytest.param(NODE, True, False, id="deleted"),
        pytest.param(Node(ObjectMeta(name="n1", deletion_timestamp="2026-01-01T00:00:00Z")), False, False, id="being deleted"),
        pytest.param(tainted(Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")), False, False, id="to be deleted"),
        pytest.param(tainted(Taint("ToBeDeletedByClusterAutoscaler", None, "")), False, False, id="any value and effect"),
        pytest.param(tainted(Taint("node.kubernetes.io/unschedulable", None, "NoSchedule")), False, True, id="cordoned"),
        pytest.param(tainted(Taint("a"), Taint("ToBeDeletedByClusterAutoscaler")), False, False, id="one of several taints"),
        pytest.param(tainted(Taint("DeletionCandidateOfClusterAutoscaler")), False, True, id="only a candidate"),
    ],
)  # fmt: skip
def test_eligible_unless_it_is_going(node: Node | None, gone: bool, eligible: bool) -> None:
    assert is_node_eligible(node, gone=gone) is eligible


class Nobody:
    """Hears of changes and does nothing."""

    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


def test_the_store_knows_whether_the_node_is_gone() -> None:
    store = ClusterStore(Nobody())

    def is_gone() -> bool:
        return store.node_gone

    assert not is_gone(), "nothing has been heard"
    store.replace(Node, [])
    assert is_gone(), "a list without it"
    store.put(NODE)
    assert not is_gone(), "it was created"
    store.remove(Node, ObjectKey("", "n2"))
    assert not is_gone(), "another one was deleted"
    store.remove(Node, ObjectKey("", "n1"))
    assert is_gone()
    assert store.node is not None, "its zone and addresses stay in use"
    store.replace(Node, [NODE])
    assert not is_gone(), "an equal Node is there again"


@pytest.mark.parametrize(
    ("absence_counts", "eligible"), [(True, False), (False, True)], ids=["API server", "manifests"]
)
def test_only_an_api_server_can_say_that_the_node_was_removed(absence_counts: bool, eligible: bool) -> None:
    store = ClusterStore(Nobody())
    ask = NodeEligibility(store, absence_counts=absence_counts)
    assert ask(), "nothing has been heard"
    store.replace(Node, [])
    assert ask() is eligible
    store.put(tainted(Taint("ToBeDeletedByClusterAutoscaler")))
    assert not ask(), "what a Node says counts from both"
