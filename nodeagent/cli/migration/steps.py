"""Decides which steps are done, and which is next (pure).

    canary ─▶ everywhere ─▶ kube-proxy-out ─▶ clean

Everything is read from the cluster and nothing is stored elsewhere: a killed command continues where it stopped.
"""

from collections.abc import Iterable
from enum import StrEnum

from nodeagent.cli.migration.found import ALONE, PROXY_LABEL, ClusterState
from nodeagent.cli.migration.placement import is_taken_out


class Step(StrEnum):
    """The steps, in this order."""

    CANARY = "canary"
    EVERYWHERE = "everywhere"
    KUBE_PROXY_OUT = "kube-proxy-out"
    CLEAN = "clean"


MEANING = {
    Step.CANARY: "one node gets the agent, is checked, loses kube-proxy, and is checked again",
    Step.EVERYWHERE: "every node gets the agent beside kube-proxy, and is checked",
    Step.KUBE_PROXY_OUT: "kube-proxy leaves every node; its rules stay, idle; every node is checked",
    Step.CLEAN: "the rules that kube-proxy left are removed from every node, and each is checked",
}


def is_done(step: Step, found: ClusterState) -> bool:
    """Returns whether the cluster is in the state that this step leaves, or further."""
    match step:
        case Step.CANARY:
            return _placed_everywhere(found) or any(
                not unready(found, (node.name,)) and node.label == ALONE and not has_kube_proxy(found, node.name)
                for node in found.nodes
            )
        case Step.EVERYWHERE:
            return _placed_everywhere(found) and not without_agent(found)
        case Step.KUBE_PROXY_OUT:
            out = found.kube_proxy is not None and is_taken_out(found.kube_proxy) and not found.kube_proxy.pods
            return out and not unready(found, found.names)
        case Step.CLEAN:
            return all(node.rules_removed for node in found.nodes if node.name in found.names)


def next_step(found: ClusterState) -> Step | None:
    """Returns the first step that is not done; None if all are."""
    return next((step for step in Step if not is_done(step, found)), None)


def steps_until(last: Step, found: ClusterState) -> tuple[Step, ...]:
    """Returns the remaining steps, up to and with `last`."""
    first = next_step(found)
    order = tuple(Step)
    return () if first is None else order[order.index(first) : order.index(last) + 1]


def canary_of(found: ClusterState, wanted: str | None) -> str | None:
    """Returns the first node: the wanted one, else one that an earlier run began with, else the first ready one by
    name; None if there is no such node."""
    names = found.names
    if wanted is not None:
        return wanted if wanted in names else None
    begun = sorted(node.name for node in found.nodes if node.label is not None and node.name in names)
    ready = sorted(node.name for node in found.nodes if node.ready and node.name in names)
    return next(iter((*begun, *ready)), None)


def has_agent(found: ClusterState, node: str) -> bool:
    """Returns whether an agent of any template runs on a node. Beside kube-proxy none of its pods is Ready: kube-proxy
    has the port that kubelet probes, and answers there. As long as that is so, pods of an old template are not
    replaced."""
    return (
        found.agents is not None
        and found.agents.observed
        and any(pod.runs and not pod.leaving for pod in found.agents.on(node))
    )


def has_kube_proxy(found: ClusterState, node: str) -> bool:
    """Returns whether a pod of kube-proxy is on a node, also one that is being deleted."""
    return found.kube_proxy is not None and bool(found.kube_proxy.on(node))


def without_agent(found: ClusterState) -> tuple[str, ...]:
    """Returns the nodes on which no agent runs."""
    return tuple(name for name in found.names if not has_agent(found, name))


def unready(found: ClusterState, nodes: Iterable[str]) -> tuple[str, ...]:
    """Returns those of the nodes on which no agent of the present template is Ready."""
    pods = found.agents.pods if found.agents is not None else ()
    ready = {pod.node for pod in pods if pod.ready and pod.current and not pod.leaving}
    return tuple(name for name in nodes if name not in ready)


def without_kube_proxy(found: ClusterState) -> tuple[str, ...]:
    """Returns the nodes on which no kube-proxy of the present template runs."""
    daemonset = found.kube_proxy
    if daemonset is None or not daemonset.observed:
        return found.names
    runs = {pod.node for pod in daemonset.pods if pod.runs and pod.current and not pod.leaving}
    return tuple(name for name in found.names if name not in runs)


def _placed_everywhere(found: ClusterState) -> bool:
    return found.agents is not None and not found.agents.has_condition_on(PROXY_LABEL)
