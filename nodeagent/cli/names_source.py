"""Reads the objects for `nodeagent dns` from a directory of manifests or an API server."""

import asyncio
from collections.abc import Callable, Coroutine
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


def read_objects(manifests: Path | None, kubeconfig: Path | None, zones: tuple[str, ...]) -> Objects:
    """Lists all objects of a source. Raises Failure."""
    try:
        return asyncio.run(asyncio.wait_for(_read(manifests, kubeconfig, zones), LIST_SECONDS))
    except TimeoutError:
        raise Failure(
            f"{manifests or kubeconfig}: Services and EndpointSlices were not listed in time", FAILED
        ) from None
    except (KubeconfigError, ManifestError) as error:
        raise Failure(str(error), UNUSABLE) from error


class _FirstLists(ChangeListener):
    """Events that are set when the objects and the namespaces have been listed once."""

    def __init__(self) -> None:
        self.all = asyncio.Event()
        self.namespaces = asyncio.Event()

    def synced(self) -> None:
        self.all.set()


async def _read(manifests: Path | None, kubeconfig: Path | None, zones: tuple[str, ...]) -> Objects:
    listed = _FirstLists()
    store = ClusterStore(listed, for_names=True)
    namespaces = NamespaceNames(listed.namespaces.set)
    if manifests is not None:
        client = None
    else:
        assert kubeconfig is not None, "a source is one of the two"
        client = ApiClient(load_kubeconfig(kubeconfig))
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
    return Objects(store, namespaces.names or (), ZoneSettings(zones=zones), str(manifests or kubeconfig))


async def _until_listed(run: Callable[[], Coroutine[None, None, None]], listed: _FirstLists) -> None:
    feeding = asyncio.create_task(run(), name="source")
    for event in (listed.all, listed.namespaces):
        waiting = asyncio.create_task(event.wait(), name="first lists")
        await asyncio.wait((feeding, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    feeding.cancel()
    with suppress(asyncio.CancelledError):
        await feeding
