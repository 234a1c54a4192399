"""Reads the objects for `nodeagent dns` from a directory of manifests or an API server."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path

from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.names_objects import Objects
from nodeagent.names.zone.lookup import ZoneSettings
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.proxy.source.client.kubeconfig import load_kubeconfig
from nodeagent.proxy.source.manifests.manifest_error import ManifestError
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_source import source_of
from nodeagent.proxy.source.object_store import ChangeListener, ClusterStore

LIST_SECONDS = 10.0


def read_objects(manifests: Path | None, kubeconfigs: Sequence[Path], zones: tuple[str, ...]) -> Objects:
    """Lists all objects of the manifests, or else of the API server of these files. Raises Failure."""
    origin = str(manifests or os.pathsep.join(map(str, kubeconfigs)))
    try:
        return asyncio.run(asyncio.wait_for(_read(manifests, kubeconfigs, zones, origin), LIST_SECONDS))
    except TimeoutError:
        raise Failure(f"{origin}: Services and EndpointSlices were not listed in time", FAILED) from None
    except (KubeconfigError, ManifestError) as error:
        raise Failure(str(error), UNUSABLE) from error


class _FirstLists(ChangeListener):
    """Events that are set when the objects and the namespaces have been listed once."""

    def __init__(self) -> None:
        self.all = asyncio.Event()
        self.namespaces = asyncio.Event()

    def synced(self) -> None:
        self.all.set()


async def _read(manifests: Path | None, kubeconfigs: Sequence[Path], zones: tuple[str, ...], origin: str) -> Objects:
    listed = _FirstLists()
    store = ClusterStore(listed, for_names=True)
    namespaces = NamespaceNames(listed.namespaces.set)
    client = ApiClient(load_kubeconfig(kubeconfigs)) if manifests is None else None
    source = source_of(
        client,
        manifests,
        store,
        node_name="",
        endpoints_api="auto",
        for_names=True,
        namespaces=namespaces,
    )
    if client is None:
        await _until_listed(source.run, listed)
    else:
        async with client:
            await _until_listed(source.run, listed)
    return Objects(store, namespaces.names or (), ZoneSettings(zones=zones), origin)


async def _until_listed(run: Callable[[], Coroutine[None, None, None]], listed: _FirstLists) -> None:
    feeding = asyncio.create_task(run(), name="source")
    for event in (listed.all, listed.namespaces):
        waiting = asyncio.create_task(event.wait(), name="first lists")
        await asyncio.wait((feeding, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    feeding.cancel()
    with suppress(asyncio.CancelledError):
        await feeding
