"""Looks up a Service that no watch delivers: a label leaves it to another proxy, or it is headless, or it does not exist."""

import asyncio
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import LABEL_SERVICE_NAME, ApiObject, EndpointSlice, Service, key_of, service_of
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.decode import ObjectDecoder
from nodeagent.proxy.source.missing_node import Lister

ANSWER_SECONDS = 1.5
"""Shorter than the time that a command waits for the agent."""

O = TypeVar("O", bound=ApiObject)  # noqa: E741  # "object of one kind"


async def ask_api_server(client: Lister, key: ObjectKey) -> UnwatchedService:
    """Looks the Service up by a list with its name: a client that may watch Services may list them, but perhaps not get them."""
    namespace = quote(key.namespace, safe="")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            path = f"/api/v1/namespaces/{namespace}/services"
            listed = await _list(client, Service, path, ("fieldSelector", f"metadata.name={key.name}"))
            service = next((one for one in listed if key_of(one) == key), None)
            if service is None or service.spec.cluster_ip != "None":
                return UnwatchedService(service)
            path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            slices = await _list(client, EndpointSlice, path, ("labelSelector", f"{LABEL_SERVICE_NAME}={key.name}"))
            return UnwatchedService(service, tuple(one for one in slices if service_of(one) == key))
    except KubeError as error:
        return UnwatchedService(silence=str(error))
    except TimeoutError:
        return UnwatchedService(silence=f"the API server did not answer within {ANSWER_SECONDS:g} s")


async def _list(client: Lister, kind: type[O], path: str, selector: tuple[str, str]) -> list[O]:
    _, batches = ObjectDecoder(kind).list_page(await client.get(path, (selector,)))
    return [one for batch in batches for one in batch.objects]


def read_manifests(root: Path, node_name: str, key: ObjectKey) -> UnwatchedService:
    """Looks the Service up in a directory of manifests."""
    from nodeagent.proxy.source.manifests.manifest_directory import ManifestDirectory  # noqa: PLC0415 - only agents with manifests load the kinds

    try:
        world = ManifestDirectory(root, node_name).read().world
    except OSError as error:
        return UnwatchedService(silence=f"manifest directory {root}: {error.strerror or error}")
    return UnwatchedService(
        world.services.get(key), tuple(one for one in world.slices.values() if service_of(one) == key)
    )
