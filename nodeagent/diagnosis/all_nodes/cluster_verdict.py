"""One verdict for all nodes: what is wrong, on how many nodes, and which nodes could not be asked."""

from collections.abc import Collection, Sequence

from nodeagent.diagnosis.all_nodes.node_answers import Condition, NodeAnswer, NodeComplaint
from nodeagent.diagnosis.verdict_line import verdict_line

MOST_NAMED = 3
"""How many nodes a sentence names at most."""


def worst_first(answers: Collection[NodeAnswer]) -> list[NodeAnswer]:
    """Returns the answers sorted by condition, the worst first, then by node name."""
    return sorted(answers, key=lambda one: (-one.condition, one.node))


def is_healthy(answers: Collection[NodeAnswer]) -> bool:
    """Returns whether every node is healthy; False if there are no nodes."""
    return bool(answers) and all(one.condition is Condition.HEALTHY for one in answers)


def cluster_verdict(answers: Collection[NodeAnswer]) -> str:
    """Returns the first line: the worst complaint; among equally bad ones, the one that most nodes have."""
    unknown = [one for one in worst_first(answers) if one.condition is Condition.UNKNOWN]
    found = _by_complaint(answers)
    if found:
        (first, nodes), *others = sorted(found, key=lambda group: (-group[0].condition, -len(group[1])))
        more = len(others) + sum(one.more for one in answers) + bool(unknown)
        what = f"{first.title} {where(nodes, len(answers))}"
        return verdict_line(first.condition.word, what, first.because, first.do, more=more)
    bad = [one for one in worst_first(answers) if one.condition > Condition.UNKNOWN]
    if bad:
        return f"{bad[0].condition.word}: {bad[0].node} says {bad[0].verdict}"
    if unknown:
        reasons = list(dict.fromkeys(one.verdict for one in unknown))
        what = f"{_names([one.node for one in unknown])} of {_nodes(len(answers))} could not be asked"
        return verdict_line(Condition.UNKNOWN.word, what, reasons[0], more=len(reasons) - 1)
    if not answers:
        return "unknown: no node was asked, because the cluster has no such nodes"
    return f"healthy: {_nodes(len(answers))}"


def where(nodes: Sequence[str], all_nodes: int) -> str:
    """Returns `on all 3 nodes`, `on node-1`, `on 2 of 3 nodes (node-1, node-2)`."""
    if len(nodes) == all_nodes > 1:
        return f"on all {all_nodes} nodes"
    if len(nodes) == 1:
        return f"on {nodes[0]}"
    return f"on {len(nodes)} of {_nodes(all_nodes)} ({_names(nodes)})"


def _by_complaint(answers: Collection[NodeAnswer]) -> list[tuple[NodeComplaint, list[str]]]:
    """Returns each complaint with the nodes that have it. Its reason is the first node's: addresses in it may differ."""
    found: dict[tuple[Condition, str, str], tuple[NodeComplaint, list[str]]] = {}
    for answer in sorted(answers, key=lambda one: one.node):
        for one in answer.complaints:
            _, nodes = found.setdefault((one.condition, one.subject, one.what), (one, []))
            if answer.node not in nodes[-1:]:
                nodes.append(answer.node)
    return list(found.values())


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
    return f"{', '.join(nodes[:MOST_NAMED])}{more}"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
