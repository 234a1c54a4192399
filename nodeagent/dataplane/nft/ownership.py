"""Which kind of table this kernel can have."""

from nodeagent.dataplane.errors import CommitRejected
from nodeagent.dataplane.nft.belief import Ownership
from nodeagent.dataplane.nft.ruleset import Ruleset
from nodeagent.dataplane.nft.transaction import Transaction
from nodeagent.model.addresses import Family

PROBE_TABLE = "nodeagent-probe"


def probe_ownership(socket: Ruleset) -> Ownership:
    """Owned where the kernel takes the owner and persist flags (Linux 6.9), else plain. Leaves nothing behind.

    Raises NotPermitted without CAP_NET_ADMIN in this network namespace's user namespace.
    """
    transaction = Transaction(Family.IPV4, {})
    transaction.probe_owned_table(PROBE_TABLE)
    try:
        socket.commit(transaction)
    except CommitRejected:
        return Ownership.PLAIN
    return Ownership.OWNED
