"""Lists the objects of an API server once, for commands that work without an agent. Loads a client of the API."""

import asyncio
import os

from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.named_node import is_named, no_such_node
from nodeagent.config.agent_config import AgentConfig
from nodeagent.daemon import part_options
from nodeagent.model.names import ObjectKey
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import OperatorError
from nodeagent.proxy.source.missing_node import node_names
from nodeagent.proxy.source.object_source import source_of
from nodeagent.proxy.source.object_store import ChangeListener, ClusterStore
from nodeagent.proxy.source.unwatched_service import ask_api_server

LIST_SECONDS = 30.0
"""Time limit for the lists of an API server."""


class _FirstLists(ChangeListener):
    """Sets `event` when everything has been listed once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def all_listed(self) -> None:
        self.event.set()


def list_api_server(config: AgentConfig, only: ObjectKey | None) -> tuple[ClusterStore, UnwatchedService | None]:
    """Returns a store with one full list of everything, and the server's answer about `only` if the lists lack it. Raises Failure."""
    try:
        return asyncio.run(_list_once(config, only))
    except OperatorError as error:
        raise Failure(str(error), UNUSABLE) from error


async def _list_once(config: AgentConfig, only: ObjectKey | None) -> tuple[ClusterStore, UnwatchedService | None]:
    """Does `list_api_server`. Raises OperatorError, and Failure if it takes too long."""
    listed = _FirstLists()
    store = ClusterStore(listed)
    client = ApiClient(part_options.cluster_access(config, os.environ))
    async with client:
        source = source_of(
            client, None, store, node_name=config.node.name, endpoints_api=config.source.endpoints_api.value
        )
        feeding = asyncio.create_task(source.run(), name="source")
        waiting = asyncio.create_task(listed.event.wait(), name="first lists")
        await asyncio.wait({feeding, waiting}, timeout=LIST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        done = waiting.done()
        for task in (feeding, waiting):
            task.cancel()
        results = await asyncio.gather(feeding, waiting, return_exceptions=True)
        unwatched = None
        if done and is_named(config) and store.node is None and (nodes := await node_names(client)):
            raise no_such_node(config, nodes)
        if done and only is not None and only not in store.services:
            unwatched = await ask_api_server(client, only)
    if isinstance(results[0], OperatorError):
        raise results[0]
    if not done:
        why = "; ".join(problem.detail for problem in store.problems[:2])
        raise Failure(f"the API server did not list {', '.join(store.awaited)} in {LIST_SECONDS:g} s: {why}", FAILED)
    return store, unwatched
