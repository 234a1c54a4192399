"""Reports a problem if the API server has no Node of the configured name, with the names that it has."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from nodeagent.model.objects import Node
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.decode import ObjectDecoder

NAMES_SHOWN = 10
LOOK_SECONDS = 1.0


class Lister(Protocol):
    """The part of `ApiClient` that lists."""

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes: ...


class Store(Protocol):
    """The known state of the Node, and the receiver of problems."""

    @property
    def node_gone(self) -> bool: ...

    def report(self, source: str, problems: Iterable[Problem]) -> None: ...


class MissingNode:
    """Reports a Problem for as long as there is no such Node. Looks periodically: a kubelet that has just started
    creates its Node within moments."""

    def __init__(self, lister: Lister, store: Store, name: str) -> None:
        self._lister = lister
        self._store = store
        self._name = name

    async def run(self) -> None:
        """Ends only by cancellation."""
        gone = False
        while True:
            if self._store.node_gone is not gone:
                gone = not gone
                problem = Problem(f"Node {self._name}", "NoSuchNode", await self._explain()) if gone else None
                if self._store.node_gone is gone:
                    self._store.report("missing node", () if problem is None else (problem,))
            await asyncio.sleep(LOOK_SECONDS)

    async def _explain(self) -> str:
        try:
            names = await node_names(self._lister)
        except KubeError:
            return "no Node of that name"
        if not names:
            return "no Node of that name; the cluster has no Nodes at all"
        more = ", …" if len(names) > NAMES_SHOWN else ""
        return f"no Node of that name; there are: {', '.join(names[:NAMES_SHOWN])}{more}"


async def node_names(lister: Lister) -> list[str]:
    """Returns the names of Nodes, sorted; at most one more than is shown. Raises KubeError."""
    body = await lister.get("/api/v1/nodes", (("limit", str(NAMES_SHOWN + 1)),))
    _, batches = ObjectDecoder(Node).list_page(body)
    return sorted(node.metadata.name for batch in batches for node in batch.objects)
