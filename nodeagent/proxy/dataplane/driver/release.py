"""Deletes captures of the API server from tables that an earlier agent left, before the first connection to it.

An agent adopts what it finds and corrects it when it knows all Services. It cannot receive them through a table that
sends its connections elsewhere.
"""

import logging

from nodeagent.model.addresses import Protocol, endpoint_text, family_of, pack_address
from nodeagent.model.problem import Retryable
from nodeagent.model.protected import Protected, SocketAddress
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.image.image import frontend_key, node_port_key
from nodeagent.proxy.dataplane.program import schema

logger = logging.getLogger(__name__)

_SPECS = {spec.name: spec for spec in schema.set_specs(counters=False)}


def release_captures(socket: Ruleset, protected: Protected) -> None:
    """Deletes the elements that capture an address of the API server, except the element of a ClusterIP.

    Logs every refusal of the kernel. Raises NotPermitted if a living process owns the table.
    """
    for way in sorted(protected.ways):
        try:
            released = _release(socket, way, local=way[0] in protected.own)
        except Retryable as error:
            logger.warning("cannot look whether a Service captures %s: %s", endpoint_text(*way), error)
            continue
        if released:
            logger.warning(
                "a Service captured %s, the way to the API server: its element was removed", endpoint_text(*way)
            )


def _release(socket: Ruleset, way: SocketAddress, *, local: bool) -> bool:
    """Returns whether an element was deleted. local: node ports answer at this address."""
    released = [_release_in(name, socket, way, local=local) for name in (schema.TABLE, schema.STANDBY_TABLE)]
    return any(released)


def _release_in(name: str, socket: Ruleset, way: SocketAddress, *, local: bool) -> bool:
    address, port = way
    family = family_of(address)
    table = KernelTable(socket, family, _SPECS, name=name)
    if table.has(schema.CLUSTER_IPS, pack_address(address)):
        return False
    captures = {schema.FRONTENDS: frontend_key(address, Protocol.TCP, port)}
    if local:
        captures[schema.NODEPORTS] = node_port_key(Protocol.TCP, port)
    found = {target: [key] for target, key in captures.items() if table.has(target, key)}
    transaction = Transaction(family, _SPECS, name)
    transaction.write_delta(Delta(deletes=found))
    socket.commit(transaction)
    return bool(found)
