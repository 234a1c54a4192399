"""Says what is wrong when the API server has no Node of the configured name, and which names it has."""

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
    """What is known of the Node, and where problems go."""

    @property
    def node_gone(self) -> bool: ...

    def report(self, source: str, problems: Iterable[Problem]) -> None: ...


class MissingNode:
    """A Problem for as long as there is no such Node. It is looked at now and then: a kubelet that has just started
    declares its Node within moments."""

    def __init__(self, lister: Lister, store: Store, name: str, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._lister = lister
        self._store = store
        self._name = name
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Ends only by cancellation."""
        gone = False
        while True:
            if self._store.node_gone is not gone:
                gone = not gone
                problem = Problem(f"Node {self._name}", "NoSuchNode", await self._explain()) if gone else None
                if self._store.node_gone is gone:
                    self._store.report("missing node", () if problem is None else (problem,))
            await asyncio.sleep(self._look_seconds)

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
    """Sorted; one more than is shown, where there are so many. Raises KubeError."""
    body = await lister.get("/api/v1/nodes", (("limit", str(NAMES_SHOWN + 1)),))
    _, batches = ObjectDecoder(Node).list_page(body)
    return sorted(node.metadata.name for batch in batches for node in batch.objects)
