"""The pods of nodeagent in the cluster, if any: their command for a trace, and their image (pure)."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from nodeagent.diagnosis.connectivity.cases import Trace
from nodeagent.model.addresses import endpoint_text

SELECTOR = "app.kubernetes.io/name=nodeagent"
"""The label that deploy/base sets."""
CONTAINER = "nodeagent"


class ProxyPod(Struct, frozen=True):
    namespace: str
    pod: str
    image: str


def agents_of(pods: Iterable[Mapping[str, Any]]) -> dict[str, ProxyPod]:
    """Returns for each node the agent that runs there."""
    found = {}
    for pod in pods:
        images = [one["image"] for one in pod["spec"]["containers"] if one["name"] == CONTAINER]
        if images and pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            metadata = pod["metadata"]
            found[pod["spec"]["nodeName"]] = ProxyPod(metadata["namespace"], metadata["name"], images[0])
    return found


def trace_command(trace: Trace) -> list[str]:
    place = f"{endpoint_text(trace.host, trace.port)}/{trace.protocol.name.lower()}"
    return ["nodeagent", "trace", trace.source, place]
