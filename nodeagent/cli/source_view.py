"""The view of a node from the source of the objects, for commands that work without an agent.

The objects are read from a directory of manifests or an API server, and translated here as an agent would.
"""

import asyncio
import os
import socket
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from nodeagent.cli.config_options import ConfigRejected
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.node_view import Access, LeftOut, NodeView, left_out_by
from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.config_problems import ConfigError
from nodeagent.config.load import load_config
from nodeagent.daemon import part_options
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR, service_of
from nodeagent.model.problem import Problem
from nodeagent.model.text import did_you_mean
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.dataplane.families import choose_families
from nodeagent.proxy.dataplane.nearby_addresses import in_use_here
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import OperatorError
from nodeagent.proxy.source.configured_ranges import WithConfiguredCidrs
from nodeagent.proxy.source.missing_node import NAMES_SHOWN, node_names
from nodeagent.proxy.source.object_source import source_of
from nodeagent.proxy.source.object_store import ChangeListener, ClusterStore
from nodeagent.proxy.source.unwatched_service import ask_api_server
from nodeagent.proxy.translate.node_ports import has_node_port, relevant_problems
from nodeagent.proxy.translate.node_state import node_context, node_state
from nodeagent.proxy.translate.translator import Translator

if TYPE_CHECKING:
    from nodeagent.proxy.source.manifests.manifest_world import World

LIST_SECONDS = 30.0
"""Time limit for the lists of an API server."""


def configured(access: Access) -> AgentConfig:
    """Returns the configuration, with the overrides of the command line. Raises ConfigRejected."""
    flags = {
        flag: value
        for flag, value in (
            ("--manifests", access.manifests),
            ("--kubeconfig", access.kubeconfig),
            ("--node-name", access.node_name),
            ("--cluster-cidr", access.cluster_cidr),
        )
        if value is not None
    }
    try:
        loaded = load_config(file=access.file, environment=os.environ, flags=flags, hostname=socket.gethostname())
    except ConfigError as error:
        raise ConfigRejected(error) from error
    return loaded.config


def view_of_source(
    config: AgentConfig, why: str, like: NodeView | None = None, only: ObjectKey | None = None
) -> NodeView:
    families = choose_families(part_options.wanted_families(config))
    left_out: LeftOut = {}
    unwatched = None
    if config.source.manifests is not None:
        snapshot, problems, left_out = _manifests(config)
    else:
        snapshot, problems, unwatched = _api_server(config, only)
        left_out = left_out_by(only, unwatched)
    ranged = WithConfiguredCidrs(snapshot, config.traffic.service_cidrs)
    options = part_options.translation_options(config, families)
    context = node_context(ranged.node, options)
    node, node_problems = node_state(ranged.node, ranged.service_cidrs, options, context)
    if like is not None and like.agent is not None:
        context, node = like.context, like.node
    translator = Translator()
    translator.update(ranged, None, context)
    states = dict(translator.states)
    needed = relevant_problems(node_problems, node_ports=any(map(has_node_port, states.values())))
    said = [*problems, *needed, *(one for state in states.values() for one in state.problems)]
    return NodeView(
        origin=f"{part_options.describe_source(config)}, as node {config.node.name}, without an agent{why}",
        context=context,
        node=node,
        services=dict(snapshot.services),
        slices={key: snapshot.slices_of(key) for key in snapshot.services},
        states=states,
        problems=tuple(sorted(set(said))),
        families=families,
        program={family: part_options.program_options(config, family) for family in families},
        interface=part_options.wanted_interface(config),
        own_addresses=_own_addresses(config, ranged),
        names_at=part_options.names_at(config),
        strays=snapshot.strays(),
        left_out=left_out,
        unwatched=unwatched,
    )


def _own_addresses(config: AgentConfig, snapshot: WithConfiguredCidrs) -> Collection[str]:
    """Returns the addresses for DNS that an agent would put on the service interface. Raises OSError."""
    if not config.dns.enabled:
        return ()
    ranges = [cidr for found in snapshot.service_cidrs for cidr in found.spec.cidrs or ()]
    return part_options.dns_addresses(config, ranges, in_use_here(config.dataplane.interface_name))


def _store_of(world: "World") -> ClusterStore:
    """Returns the objects of a directory as a store, the input of the translator."""
    store = ClusterStore(_IgnoreChanges())
    store.replace(Node, world.nodes.values())
    store.replace(ServiceCIDR, world.service_cidrs.values())
    store.replace(EndpointSlice, world.slices.values())
    store.replace(Service, world.services.values())
    return store


class _IgnoreChanges(ChangeListener):
    """Receives the changes of a store and ignores them."""


def _manifests(config: AgentConfig) -> tuple[ClusterStore, tuple[Problem, ...], LeftOut]:
    root = config.source.manifests
    assert root is not None, "the caller looked"
    from nodeagent.proxy.source.manifests.manifest_directory import ManifestDirectory  # noqa: PLC0415

    try:
        reading = ManifestDirectory(root, config.node.name).read()
    except OSError as error:
        raise Failure(f"manifest directory {root}: {error.strerror or error}", UNUSABLE) from error
    if _is_named(config) and not reading.world.nodes and reading.world.other_nodes:
        raise _no_such_node(config, reading.world.other_nodes)
    store = _store_of(reading.world)
    left_out = {
        key: (service, [one for one in reading.world.slices.values() if service_of(one) == key])
        for key, service in reading.world.services.items()
        if key not in store.services
    }
    return store, (*reading.problems, *reading.world.problems), left_out


class _FirstLists(ChangeListener):
    """Sets `event` when everything has been listed once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def all_listed(self) -> None:
        self.event.set()


def _api_server(
    config: AgentConfig, only: ObjectKey | None
) -> tuple[ClusterStore, tuple[Problem, ...], UnwatchedService | None]:
    """Lists the objects of an API server. Raises Failure."""
    try:
        store, unwatched = asyncio.run(_list_once(config, only))
    except OperatorError as error:
        raise Failure(str(error), UNUSABLE) from error
    return store, store.problems, unwatched


async def _list_once(config: AgentConfig, only: ObjectKey | None) -> tuple[ClusterStore, UnwatchedService | None]:
    """Returns a store with one full list of everything, and the server's answer about `only` if the lists lack it. Raises
    OperatorError, and Failure if it takes too long."""
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
        if done and _is_named(config) and store.node is None and (nodes := await node_names(client)):
            raise _no_such_node(config, nodes)
        if done and only is not None and only not in store.services:
            unwatched = await ask_api_server(client, only)
    if isinstance(results[0], OperatorError):
        raise results[0]
    if not done:
        why = "; ".join(problem.detail for problem in store.problems[:2])
        raise Failure(f"the API server did not list {', '.join(store.awaited)} in {LIST_SECONDS:g} s: {why}", FAILED)
    return store, unwatched


def _is_named(config: AgentConfig) -> bool:
    """Returns whether the node was named explicitly: the default is the name of this host."""
    return config.node.name != socket.gethostname().lower()


def _no_such_node(config: AgentConfig, nodes: Sequence[str]) -> Failure:
    name = config.node.name
    more = ", …" if len(nodes) > NAMES_SHOWN else ""
    listed = did_you_mean(name, nodes) or f"; there are: {', '.join(nodes[:NAMES_SHOWN])}{more}"
    return Failure(
        f"{part_options.describe_source(config)}: there is no Node {name}{listed} (--node-name names another)", UNUSABLE
    )
