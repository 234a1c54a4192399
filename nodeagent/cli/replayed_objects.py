"""Writes the objects of a bundle as manifests, for replayed commands."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from nodeagent.cli.recording import NotReplayable, Recording
from nodeagent.proxy.translate.context import Context
from nodeagent.wire.unreadable import UNREADABLE

OBJECTS, CONTEXT = "objects.json", "context.json"


class _Bundled(msgspec.Struct, frozen=True):
    service: dict[str, object]
    slices: tuple[dict[str, object], ...] = ()


def write_manifests(members: Mapping[str, bytes], directory: Path) -> str:
    """Writes all objects to one file; returns the name of the node. Raises NotReplayable, OSError."""
    try:
        bundled = msgspec.json.decode(members.get(OBJECTS, b"[]"), type=tuple[_Bundled, ...])
        context = msgspec.json.decode(members.get(CONTEXT, b"{}"), type=Context)
    except UNREADABLE as error:
        raise NotReplayable(f"another version wrote it: {error}") from error
    text = "\n---\n".join(json.dumps(one) for one in _manifests(bundled, context))
    (directory / "bundle.yaml").write_text(text)
    return context.node_name


def environment_of(directory: Path, node: str, recording: Recording) -> dict[str, str]:
    """Returns variables that make a command read these manifests for that node. A bundle has no service interface."""
    names = (
        {"NODEAGENT_DNS_ENABLED": "true", "NODEAGENT_DNS_LISTEN": ",".join(recording.names_at)}
        if recording.names_at
        else {}
    )
    return names | {
        "NODEAGENT_DATAPLANE_SERVICE_INTERFACE": "false",
        "NODEAGENT_SOURCE_MANIFESTS": str(directory),
        "NODEAGENT_NODE_NAME": node,
        "NODEAGENT_TRAFFIC_CLUSTER_CIDRS": ",".join(recording.node.pod_cidrs),
        "NODEAGENT_TRAFFIC_SERVICE_CIDRS": ",".join(recording.node.service_cidrs),
    }


def _manifests(bundled: tuple[_Bundled, ...], context: Context) -> Iterator[dict[str, object]]:
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": context.node_name,
            "labels": {"topology.kubernetes.io/zone": context.zone} if context.zone else {},
        },
        "status": {"addresses": [{"type": "InternalIP", "address": one} for one in context.node_addresses]},
    }
    for one in bundled:
        yield {"apiVersion": "v1", "kind": "Service", **one.service}
        for each in one.slices:
            yield {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **each}
