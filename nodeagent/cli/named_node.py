"""Whether the user named the node, and the failure if the source has no Node of that name."""

import socket
from collections.abc import Sequence

from nodeagent.cli.exit_codes import UNUSABLE, Failure
from nodeagent.config.agent_config import AgentConfig
from nodeagent.daemon import part_options
from nodeagent.model.text import did_you_mean
from nodeagent.proxy.source.missing_node import NAMES_SHOWN


def is_named(config: AgentConfig) -> bool:
    """Returns whether the node was named explicitly: the default is the name of this host."""
    return config.node.name != socket.gethostname().lower()


def no_such_node(config: AgentConfig, nodes: Sequence[str]) -> Failure:
    """Returns the failure. nodes: the names of those that the source has."""
    name = config.node.name
    more = ", …" if len(nodes) > NAMES_SHOWN else ""
    listed = did_you_mean(name, nodes) or f"; there are: {', '.join(nodes[:NAMES_SHOWN])}{more}"
    return Failure(
        f"{part_options.describe_source(config)}: there is no Node {name}{listed} (--node-name names another)", UNUSABLE
    )
