"""Whether the test pods run, and if not, why (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodeagent.diagnosis.connectivity.objects import ROLE, ROLES

Document = Mapping[str, Any]

HOPELESS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Waiting reasons of a container that do not go away with time."""


def why_never_ready(pods: Iterable[Document]) -> str:
    """Returns which pod will never run, and why; empty if all may."""
    for pod in pods:
        for reason, message in _reasons(pod):
            if reason in HOPELESS:
                return f"{_named(pod)}: {reason}: {message or 'no message'}"
    return ""


def _reasons(pod: Document) -> Iterator[tuple[str, str]]:
    for container in pod.get("status", {}).get("containerStatuses") or ():
        waiting = container.get("state", {}).get("waiting") or {}
        ended = (container.get("lastState", {}).get("terminated") or {}).get("message", "")
        yield waiting.get("reason", ""), ended or waiting.get("message", "")


def missing_pods(pods: Sequence[Document], nodes: Iterable[str]) -> list[str]:
    """Returns what is missing: pods that are not ready, with the reason, and pods that were not created."""
    found = {(pod["metadata"]["labels"].get(ROLE, ""), pod["spec"].get("nodeName", "")): pod for pod in pods}
    lines = []
    for node in nodes:
        for role in ROLES:
            pod = found.get((role, node))
            if pod is None:
                lines.append(f"no pod {role} on {node}")
            elif not _is_ready(pod):
                lines.append(f"{_named(pod)}: {_why_not_ready(pod)}")
    return lines


def _is_ready(pod: Document) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _why_not_ready(pod: Document) -> str:
    reasons = [f"{reason}: {message}".removesuffix(": ") for reason, message in _reasons(pod) if reason]
    conditions = pod.get("status", {}).get("conditions") or ()
    messages = [one["message"] for one in conditions if one.get("status") == "False" and one.get("message")]
    phase: str = pod.get("status", {}).get("phase", "no state")
    return next(iter(reasons + messages), phase)


def _named(pod: Document) -> str:
    return f"pod {pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}"
