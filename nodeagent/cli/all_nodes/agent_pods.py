"""Finds the nodes of a cluster, and the pod or lab in which the agent of each can be asked."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from nodeagent.cli.exit_codes import UNUSABLE, Failure
from nodeagent.diagnosis.connectivity.agents import CONTAINER, SELECTOR
from nodeagent.lab.lab_objects import MANAGED_BY
from nodeagent.model.text import did_you_mean
from nodeagent.proxy.source.client.api_errors import MalformedAnswerError
from nodeagent.wire.unreadable import UNREADABLE

LAB_MARK = "nodeagent-lab-"
PAGE = "500"

Document = Mapping[str, Any]


class AgentPlace(Struct, frozen=True):
    """A node and its agent. pod: the agent's pod. lab: the node's lab. why: if both are empty, why it cannot be asked."""

    node: str
    pod: str = ""
    lab: str = ""
    why: str = ""


class ClusterLister(Protocol):
    """The part of `ApiClient` that lists."""

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes: ...


async def find_agents(lister: ClusterLister, namespace: str, only: Collection[str], selector: str) -> list[AgentPlace]:
    """Returns a place for each node, sorted by name. only: the nodes that the user named; empty: all. Raises KubeError,
    and Failure if there is no node of a given name."""
    query = (("labelSelector", selector),) if selector else ()
    nodes = {one["metadata"]["name"]: one for one in await _list(lister, "/api/v1/nodes", query)}
    for name in only:
        if name not in nodes:
            raise Failure(f"--node {name}: the cluster has no such node{did_you_mean(name, nodes)}", UNUSABLE)
    wanted = sorted(set(only) or nodes)
    labs = {name: lab for name in wanted if (lab := _lab_of(nodes[name]))}
    if len(labs) == len(wanted):
        return [AgentPlace(name, lab=labs[name]) for name in wanted]
    pods = await _list(lister, f"/api/v1/namespaces/{namespace}/pods", (("labelSelector", SELECTOR),))
    by_node: dict[str, list[Document]] = {}
    for pod in pods:
        if any(one["name"] == CONTAINER for one in pod["spec"]["containers"]):
            by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
    return [
        AgentPlace(name, lab=labs[name])
        if name in labs
        else _agent_place(nodes[name], by_node.get(name, []), namespace)
        for name in wanted
    ]


async def _list(lister: ClusterLister, path: str, query: Sequence[tuple[str, str]]) -> list[Document]:
    """Lists all objects at a path, page by page. Raises KubeError."""
    found: list[Document] = []
    going_on = ""
    while True:
        parameters = [*query, ("limit", PAGE), *([("continue", going_on)] if going_on else [])]
        try:
            page: dict[str, Any] = msgspec.json.decode(await lister.get(path, parameters), type=dict)
            found += page.get("items") or []
            going_on = (page.get("metadata") or {}).get("continue") or ""
        except (*UNREADABLE, AttributeError, TypeError) as error:
            raise MalformedAnswerError(f"{path}: the answer is not a list: {error}") from error
        if not going_on:
            return found


def _lab_of(node: Document) -> str:
    """Returns the lab that created this Node; empty for a Node of a real cluster."""
    mark = str((node["metadata"].get("labels") or {}).get(MANAGED_BY, ""))
    return mark.removeprefix(LAB_MARK) if mark.startswith(LAB_MARK) else ""


def _agent_place(node: Document, pods: Sequence[Document], namespace: str) -> AgentPlace:
    """Returns the place of a node. pods: agents on it; of several (during an update) a ready one, then the newest."""
    name = node["metadata"]["name"]
    running = [one for one in pods if _runs(one)]
    if running:
        best = max(running, key=lambda one: (_is_ready(one), one["metadata"].get("creationTimestamp", "")))
        return AgentPlace(name, pod=best["metadata"]["name"])
    if pods:
        pod = pods[0]["metadata"]["name"]
        why = f"its agent's pod {pod} does not run ({_state(pods[0])}): kubectl describe pod {pod} -n {namespace}"
    else:
        look = f"kubectl get pods -n {namespace} -l {SELECTOR} -o wide"
        why = (
            f"no pod of an agent in {namespace} is on it: {look}; if systemd runs its agent: ssh {name} nodeagent check"
        )
    return AgentPlace(name, why=why)


def _container(pod: Document) -> Document:
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in found if one.get("name") == CONTAINER), {})


def _runs(pod: Document) -> bool:
    gone = "deletionTimestamp" in pod["metadata"]
    return not gone and "running" in (_container(pod).get("state") or {})


def _is_ready(pod: Document) -> bool:
    return bool(_container(pod).get("ready"))


def _state(pod: Document) -> str:
    """Returns the state of a pod, such as `CrashLoopBackOff`, or its phase."""
    if "deletionTimestamp" in pod["metadata"]:
        return "it is being deleted"
    state = _container(pod).get("state") or {}
    reasons = [one.get("reason") for one in state.values() if isinstance(one, Mapping)]
    return str(next((one for one in reasons if one), (pod.get("status") or {}).get("phase") or "unknown"))
