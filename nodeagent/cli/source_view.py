"""The view of a node from the source of the objects, for commands that work without an agent.

The objects are read from a directory of manifests or an API server, and translated here as an agent would.
"""

import os
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING

from nodeagent.cli.config_options import ConfigRejected
from nodeagent.cli.exit_codes import UNUSABLE, Failure
from nodeagent.cli.named_node import is_named, no_such_node
from nodeagent.cli.node_view import Access, LeftOut, NodeView, left_out_by
from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.config_problems import ConfigError
from nodeagent.config.load import load_config
from nodeagent.daemon import part_options
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR, service_of
from nodeagent.model.problem import Problem
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.dataplane.families import choose_families
from nodeagent.proxy.dataplane.nearby_addresses import in_use_here
from nodeagent.proxy.source.configured_ranges import WithConfiguredCidrs
from nodeagent.proxy.source.object_store import ChangeListener, ClusterStore
from nodeagent.proxy.translate.node_ports import has_node_port, relevant_problems
from nodeagent.proxy.translate.node_state import node_context, node_state
from nodeagent.proxy.translate.translator import Translator
from nodeagent.runtime.imports import import_all

if TYPE_CHECKING:
    from nodeagent.proxy.source.manifests.manifest_world import World


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
    if is_named(config) and not reading.world.nodes and reading.world.other_nodes:
        raise no_such_node(config, reading.world.other_nodes)
    store = _store_of(reading.world)
    left_out = {
        key: (service, [one for one in reading.world.slices.values() if service_of(one) == key])
        for key, service in reading.world.services.items()
        if key not in store.services
    }
    return store, (*reading.problems, *reading.world.problems), left_out


def _api_server(
    config: AgentConfig, only: ObjectKey | None
) -> tuple[ClusterStore, tuple[Problem, ...], UnwatchedService | None]:
    """Lists the objects of an API server. Raises Failure."""
    import_all(["nodeagent.cli.api_lists"])  # loads a client of the API
    from nodeagent.cli.api_lists import list_api_server  # noqa: PLC0415 - as above

    store, unwatched = list_api_server(config, only)
    return store, store.problems, unwatched
