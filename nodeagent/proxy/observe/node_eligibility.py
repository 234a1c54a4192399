"""Decides whether load balancers may send traffic to this node, by its Node object."""

from typing import Protocol

from nodeagent.model.objects import Node

TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
"""The taint of a node that the cluster autoscaler is about to remove (autoscaler, utils/taints); any value, any effect."""


class NodeStore(Protocol):
    """The known state of the Node object."""

    @property
    def node(self) -> Node | None: ...
    @property
    def node_gone(self) -> bool: ...


def is_node_eligible(node: Node | None, *, gone: bool) -> bool:
    """Returns whether load balancers may send traffic here.

    node: as last seen; gone: the API server reported that it does not exist. Neither: not known yet, which is no reason
    to remove the node while its rules still work.
    """
    if gone:
        return False
    if node is None:
        return True
    taints = node.spec.taints or ()
    return node.metadata.deletion_timestamp is None and all(taint.key != TAINT_TO_BE_DELETED for taint in taints)


class NodeEligibility:
    """Tells whether load balancers may send traffic to this node. absence_counts: whether a source without the Node proves that
    it was deleted. Manifests need not have one: only an API server can prove that."""

    def __init__(self, store: NodeStore, *, absence_counts: bool) -> None:
        self._store = store
        self._absence_counts = absence_counts

    def __call__(self) -> bool:
        if self._store.node_gone and not self._absence_counts:
            return True
        return is_node_eligible(self._store.node, gone=self._store.node_gone)
