"""What Services offer, and which pods must answer at each of their frontends. Pure: docs/semantics.md in a dozen lines.

A view is the text of a frontend on a node, `ADDRESS:PORT@NODE`, a Service, `NAME#`, its name, `NAME?`, or its slices, `NAME=`; its
members are the pods behind it, or the answer of DNS.
"""

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodeagent.model.addresses import Family, endpoint_text, family_of
from tests.soak.records import FRONTENDS, NO_ADDRESS, NO_NAME

Document = dict[str, Any]
Views = frozenset[tuple[str, str]]
TARGET_PORT = 8080
GROUPS = ("a", "b")
AFFINITY_SECONDS = 10


@dataclass(frozen=True, slots=True)
class PodState:
    """addresses: of both families, IPv4 first. joined: whether its labels are those that Services select."""

    node: str
    addresses: tuple[str, ...]
    group: str
    ready: bool = True
    joined: bool = True
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """Where clients connect to. service: its name. kind: ClusterIP, NodePort or LoadBalancer. node: of a node port, else empty."""

    service: str
    kind: str
    address: str
    port: int
    node: str = ""

    def view(self, node: str) -> str:
        """Returns the view of its frontend on a node."""
        return f"{endpoint_text(self.address, self.port)}@{self.node or node}"


def spec_of(choice: int) -> Document:
    """Returns the spec of a Service, with every field that another spec may have set."""
    chance = random.Random(choice)
    kind = chance.choice(("ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"))
    port = chance.choice((80, 81, 8000))
    affinity = chance.random() < 0.4
    group = chance.choice((None, None, *GROUPS))
    return {
        "type": kind,
        "ipFamilyPolicy": "PreferDualStack",
        "selector": {"app": "echo", "group": group},
        "ports": [
            {"name": "tcp", "port": port, "targetPort": TARGET_PORT, "protocol": "TCP"},
            {"name": "udp", "port": port, "targetPort": TARGET_PORT, "protocol": "UDP"},
        ],
        "internalTrafficPolicy": "Local" if chance.random() < 0.25 else "Cluster",
        "externalTrafficPolicy": None if kind == "ClusterIP" else chance.choice(("Cluster", "Local")),
        "sessionAffinity": "ClientIP" if affinity else "None",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}} if affinity else None,
    }


def headless_spec(choice: int) -> Document:
    """Returns the spec of a Service that has only a name."""
    return {**without_nulls(spec_of(choice)), "type": "ClusterIP", "clusterIP": "None"} | {
        "externalTrafficPolicy": None,
        "sessionAffinity": "None",
        "sessionAffinityConfig": None,
    }


def without_nulls(document: Document) -> Document:
    """Returns what a merge patch of nothing with this document gives."""
    return {
        key: without_nulls(value) if isinstance(value, dict) else value
        for key, value in document.items()
        if value is not None
    }


def is_headless(service: Document) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def targets(service: Document, nodes: Mapping[str, tuple[str, ...]]) -> Iterator[Target]:
    """Yields where the TCP port of a Service is reached. nodes: addresses by name."""
    if is_headless(service):
        return
    spec, name = service["spec"], service["metadata"]["name"]
    port = next(port for port in spec["ports"] if port["protocol"] == "TCP")
    for address in spec.get("clusterIPs") or [spec["clusterIP"]]:
        yield Target(name, "ClusterIP", address, port["port"])
    if port.get("nodePort"):
        for node, addresses in nodes.items():
            for address in addresses:
                yield Target(name, "NodePort", address, port["nodePort"], node)
    for ingress in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []:
        yield Target(name, "LoadBalancer", ingress["ip"], port["port"])


def usable(pods: Mapping[str, PodState], node: str = "") -> set[str]:
    """Returns the ready ones, or else those that terminate and serve; of a node, if one is named."""
    here = {name: pod for name, pod in pods.items() if not node or pod.node == node}
    ready = {name for name, pod in here.items() if pod.ready and not pod.terminating}
    return ready or {name for name, pod in here.items() if pod.ready and pod.terminating}


def selected(service: Document, pods: Mapping[str, PodState]) -> dict[str, PodState]:
    group = service["spec"]["selector"].get("group")
    return {name: pod for name, pod in pods.items() if pod.joined and group in (None, pod.group)}


def views_of(
    service: Document, pods: Mapping[str, PodState], nodes: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """Yields each view of a Service with each of its members, and that the view exists."""
    mine = selected(service, pods)
    spec = service["spec"]
    for pod in usable(mine):
        yield service_view(service["metadata"]["name"]), pod
    for target in targets(service, nodes):
        policy = spec.get("internalTrafficPolicy" if target.kind == "ClusterIP" else "externalTrafficPolicy")
        for node in (target.node,) if target.node else nodes:
            yield FRONTENDS, target.view(node)
            for pod in usable(mine, node if policy == "Local" else ""):
                yield target.view(node), pod


def service_view(name: str) -> str:
    return f"{name}#"


def name_view(name: str) -> str:
    return f"{name}?"


def slices_view(name: str) -> str:
    return f"{name}="


def slices_answer(service: Document, pods: Mapping[str, PodState]) -> str:
    """Returns what DNS answers from the slices of a Service, if it is headless."""
    ready = (pod for pod in selected(service, pods).values() if pod.ready and not pod.terminating)
    return answer_text(pod.addresses[0] for pod in ready)


def name_answer(service: Document | None, pods: Mapping[str, PodState]) -> str:
    """Returns what DNS answers to an A query for the name of a Service."""
    if service is None:
        return NO_NAME
    if is_headless(service):
        return slices_answer(service, pods)
    spec = service["spec"]
    return answer_text(one for one in spec.get("clusterIPs") or [spec["clusterIP"]] if family_of(one) is Family.IPV4)


def answer_text(addresses: Iterator[str] | Collection[str]) -> str:
    """Returns addresses in an order that does not depend on theirs."""
    return " ".join(sorted(addresses)) or NO_ADDRESS
