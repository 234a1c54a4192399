"""The changes to kube-proxy's DaemonSet that make its pods leave nodes, and come back (pure).

Each function returns a JSON merge patch (RFC 7386): null removes a key, a list is replaced as a whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nodeagent.cli.migration.found import ALONE, PROXY_LABEL, REQUIRED, TAKEN_OUT, DaemonSet, Document

_NOT_ALONE = {"key": PROXY_LABEL, "operator": "NotIn", "values": [ALONE]}
_EXPRESSIONS = "matchExpressions"


def leaves_single_nodes(kube_proxy: DaemonSet) -> bool:
    """Returns whether a label on a Node makes kube-proxy leave it."""
    return kube_proxy.has_condition_on(PROXY_LABEL)


def is_taken_out(kube_proxy: DaemonSet) -> bool:
    """Returns whether kube-proxy is placed on no node."""
    return TAKEN_OUT in kube_proxy.selector


def leave_single_nodes(kube_proxy: DaemonSet) -> Document:
    """Makes kube-proxy leave each node with the label; its other conditions stay. Each term gets the condition."""
    terms = [{**term, _EXPRESSIONS: [*_others(term), _NOT_ALONE]} for term in kube_proxy.terms or ({},)]
    return _patch({}, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})


def leave_all_nodes(kube_proxy: DaemonSet) -> Document:
    """Makes kube-proxy leave every node; labels of nodes have no effect any more."""
    return _patch({TAKEN_OUT: "taken-out"}, _affinity_before(kube_proxy))


def restore_everywhere(kube_proxy: DaemonSet) -> Document:
    """Places kube-proxy as before the first step."""
    return _patch({TAKEN_OUT: None}, _affinity_before(kube_proxy))


def _affinity_before(kube_proxy: DaemonSet) -> Document | None:
    """Returns the affinity without our condition, and without what was added only for it."""
    terms = [kept for term in kube_proxy.terms if (kept := _without_ours(term))]
    if terms:
        return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    preferred = {
        key: value for key, value in (kube_proxy.affinity.get("nodeAffinity") or {}).items() if key != REQUIRED
    }
    others = {key: value for key, value in kube_proxy.affinity.items() if key != "nodeAffinity"}
    if preferred:
        return {"nodeAffinity": {REQUIRED: None}}
    return {"nodeAffinity": None} if others else None


def _without_ours(term: Mapping[str, Any]) -> Document:
    expressions = _others(term)
    rest = {key: value for key, value in term.items() if key != _EXPRESSIONS}
    return {**rest, _EXPRESSIONS: expressions} if expressions else rest


def _others(term: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [one for one in term.get(_EXPRESSIONS) or () if one.get("key") != PROXY_LABEL]


def _patch(selector: Mapping[str, str | None], affinity: Document | None) -> Document:
    pod: Document = {"affinity": affinity}
    if selector:
        pod["nodeSelector"] = dict(selector)
    return {"spec": {"template": {"spec": pod}}}
