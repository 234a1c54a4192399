"""Decides whether to use an owned or a plain table."""

import logging

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, repeated
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected

PROBE_TABLE = "nodeagent-probe"

logger = logging.getLogger(__name__)


def choose_ownership(socket: Ruleset, wanted: Ownership | None) -> Ownership:
    """Returns the wanted kind, or a plain table, with a warning, if the kernel cannot have an owned one; None: owned if possible.
    Raises NotPermitted."""
    if wanted is Ownership.PLAIN:
        socket.generation()  # a probe would change the ruleset's generation; a read shows whether we are permitted
        return Ownership.PLAIN
    able = probe_ownership(socket)
    if wanted is Ownership.OWNED and able is not Ownership.OWNED:
        logger.warning("tableOwnership: this kernel has no persistent owned tables (Linux 6.9); using a plain one")
    return able


def probe_ownership(socket: Ruleset) -> Ownership:
    """Returns OWNED if the kernel accepts the owner and persist flags (Linux 6.9), else PLAIN. Leaves nothing behind.

    Raises NotPermitted without CAP_NET_ADMIN in this network namespace's user namespace.
    """
    transaction = Transaction(Family.IPV4, {})
    transaction.probe_owned_table(PROBE_TABLE)
    try:
        repeated(lambda: socket.commit(transaction))
    except CommitRejected:
        return Ownership.PLAIN
    return Ownership.OWNED
