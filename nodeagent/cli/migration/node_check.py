"""Checks a node through the agent's pod on it."""

import json

from nodeagent.cli.migration.found import ClusterState
from nodeagent.cli.migration.kubectl import Kubectl
from nodeagent.cli.migration.steps import has_agent

_PYTHON = "import socket, sys; socket.create_connection((sys.argv[1], 443), 5).close()"
_WRITTEN = ("table ip kube-proxy", "table ip6 kube-proxy", "chain KUBE-SVC-", "kube-ipvs0")
"""kube-proxy's rules contain one of these in each of its modes."""


class NodeFailed(Exception):
    """One line: which node, and what is wrong there."""


def check_node(kubectl: Kubectl, found: ClusterState, node: str) -> None:
    """Raises NodeFailed unless the agent is ready and healthy, and the Service `kubernetes` accepts a connection."""
    pod = agent_pod(found, node)
    result = kubectl.in_pod(pod, "nodeagent", "check", "--output", "json")
    try:
        document = json.loads(result.output)
        verdict, checks = document["verdict"], document["checks"]
    except (ValueError, KeyError) as error:
        raise NodeFailed(f"{node}: `nodeagent check` in pod {pod}: {result.errors.strip() or result.output}") from error
    if result.code != 0:
        raise NodeFailed(f"{node}: {verdict}")
    passed = {one["check"] for one in checks if one["result"] == "ok"}
    if "agent" not in passed or not any(check.endswith(" table") for check in passed):
        raise NodeFailed(f"{node}: the agent has programmed nothing yet")
    for address in found.kubernetes:
        probe = kubectl.in_pod(pod, "/usr/bin/python3", "-IS", "-c", _PYTHON, address)
        if probe.code != 0:
            reason = probe.errors.strip().splitlines()[-2:-1] or probe.errors.strip().splitlines()
            raise NodeFailed(f"{node}: no connection to the Service kubernetes at {address}: {' '.join(reason)}")


def remove_rules(kubectl: Kubectl, found: ClusterState, node: str) -> int:
    """Removes what kube-proxy left on a node; returns the number of items. Raises NodeFailed."""
    result = kubectl.in_pod(agent_pod(found, node), "nodeagent", "cleanup", "--of", "kube-proxy")
    if result.code != 0:
        raise NodeFailed(f"{node}: {result.errors.strip().removeprefix('nodeagent: ')}")
    return sum(line.startswith("removed ") for line in result.output.splitlines())


def has_rules_of_kube_proxy(kubectl: Kubectl, found: ClusterState, node: str) -> bool:
    """Returns whether kube-proxy has programmed Services there."""
    result = kubectl.in_pod(agent_pod(found, node), "nodeagent", "cleanup", "--of", "kube-proxy", "--dry-run")
    return any(mark in result.output for mark in _WRITTEN)


def agent_pod(found: ClusterState, node: str) -> str:
    """Returns the name of the agent's pod on a node. Raises NodeFailed if none runs."""
    if found.agents is None or not has_agent(found, node):
        raise NodeFailed(f"{node}: no agent runs there")
    return next(pod.name for pod in found.agents.on(node) if pod.runs and not pod.leaving)
