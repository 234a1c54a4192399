"""The command's access to the cluster: objects by their paths, programs in pods."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from nodeagent.diagnosis.connectivity.objects import SELECTOR
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import MalformedAnswerError, NotServedError
from nodeagent.proxy.source.pod_exec import run_in_pod
from nodeagent.wire.unreadable import UNREADABLE

Document = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
NAMESPACES = "/api/v1/namespaces"
BACKGROUND = {"propagationPolicy": "Background"}


class ClusterClient:
    """Uses an open client. Raises KubeError."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.run = partial(run_in_pod, client)

    @property
    def server(self) -> str:
        return self._client.server

    async def items(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> list[Document]:
        items: list[Document] = _document(await self._client.get(path, parameters)).get("items") or []
        return items

    async def create(self, path: str, document: Mapping[str, object]) -> Document:
        return _document(await self._client.request_json("POST", path, document))

    async def patch(self, path: str, document: Mapping[str, object]) -> Document:
        return _document(await self._client.request_json("PATCH", path, document, content_type=MERGE_PATCH))

    async def delete_namespace(self, name: str) -> bool:
        """Begins to delete the namespace; returns False when it does not exist."""
        try:
            await self._client.request_json("DELETE", f"{NAMESPACES}/{name}", BACKGROUND)
        except NotServedError:
            return False
        return True

    async def has_namespace(self, name: str) -> bool:
        try:
            await self._client.get(f"{NAMESPACES}/{name}")
        except NotServedError:
            return False
        return True

    async def own_namespaces(self) -> list[str]:
        """Returns the namespaces that this command has created, in this run or an earlier one."""
        items = await self.items(NAMESPACES, [("labelSelector", SELECTOR)])
        return sorted(item["metadata"]["name"] for item in items)


def _document(body: bytes) -> Document:
    try:
        return msgspec.json.decode(body, type=Document)
    except UNREADABLE as error:
        raise MalformedAnswerError(f"an answer that is not a JSON object: {error}") from error
