"""May load balancers send traffic to this node, as far as its Node object tells?"""

from typing import Protocol

from nodeagent.model.objects import Node

TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
"""Put on a node that the cluster autoscaler is about to remove (autoscaler, utils/taints); any value, any effect."""


class NodeStore(Protocol):
    """What is known of the Node object."""

    @property
    def node(self) -> Node | None: ...
    @property
    def node_gone(self) -> bool: ...


def is_node_eligible(node: Node | None, *, gone: bool) -> bool:
    """Whether load balancers may send traffic here.

    node: the last that was seen; gone: the API server says that it does not exist. Neither: not known yet, which is no reason
    to take the node out while its rules still work.
    """
    if gone:
        return False
    if node is None:
        return True
    taints = node.spec.taints or ()
    return node.metadata.deletion_timestamp is None and all(taint.key != TAINT_TO_BE_DELETED for taint in taints)


class NodeEligibility:
    """absence_counts: whether a source without the Node says that it was removed. Manifests need not have one: only an
    API server can tell that."""

    def __init__(self, store: NodeStore, *, absence_counts: bool) -> None:
        self._store = store
        self._absence_counts = absence_counts

    def __call__(self) -> bool:
        """Whether load balancers may send traffic here, as of now."""
        if self._store.node_gone and not self._absence_counts:
            return True
        return is_node_eligible(self._store.node, gone=self._store.node_gone)
