"""Chooses the source of the cluster's objects: an API server or a directory of manifests."""

import asyncio
import random
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from nodeagent.proxy.source.api_source import ApiServerSource, EndpointsApi
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.following import Following
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import AMONG_SEVERAL, Pace
from nodeagent.proxy.source.pod_addresses import PodAddresses


class Source(Protocol):
    """Delivers objects to a store."""

    @property
    def following(self) -> Collection[Following]:
        """The progress of each resource of an API server; empty for a directory."""
        ...

    async def run(self) -> None:
        """Feed the store until cancelled."""
        ...


def source_of(
    client: ApiClient | None,
    manifests: Path | None,
    store: ClusterStore,
    *,
    node_name: str,
    endpoints_api: EndpointsApi,
    for_names: bool = False,
    namespaces: NamespaceNames | None = None,
    pods: PodAddresses | None = None,
) -> Source:
    """Returns the source for the API server that `client` reaches, or else for the directory. for_names, pods: see `ApiServerSource`.
    namespaces: receives the present ones."""
    if client is not None:
        return ApiServerSource(
            client,
            store,
            node_name=node_name,
            endpoints_api=endpoints_api,
            for_names=for_names,
            namespaces=namespaces,
            pods=pods,
            pace=Pace(random.random, asyncio.sleep, AMONG_SEVERAL) if client.has_several_servers else None,
        )
    assert manifests is not None, "a source is one of the two"
    # With an API server, no schemas of kinds, no YAML and no file events are needed.
    from nodeagent.proxy.source.manifests.manifest_source import ManifestSource  # noqa: PLC0415

    return ManifestSource(manifests, store, node_name=node_name, namespaces=namespaces)
