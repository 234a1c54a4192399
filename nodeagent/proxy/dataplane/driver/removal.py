"""Removes our tables."""

from functools import partial

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, repeated
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import NotPermitted
from nodeagent.proxy.dataplane.program import schema


def require_removable(socket: Ruleset) -> None:
    """Raises NotPermitted if a living process owns one of the tables."""
    for family in Family:
        header = KernelTable(socket, family, {}).header()
        if header is not None and header.owner:
            raise NotPermitted(f"table nodeagent ({family.value}) is owned by a running nodeagent: stop it first")


def remove_tables(socket: Ruleset) -> tuple[Family, ...]:
    """Deletes our tables, in one transaction each; returns the families that had one.

    Raises NotPermitted if a living process owns a table, or without CAP_NET_ADMIN.
    """
    removed: dict[Family, None] = {}

    def remove(family: Family, name: str) -> None:
        if KernelTable(socket, family, {}, name=name).header() is None:
            return
        removed[family] = None
        transaction = Transaction(family, {}, name)
        transaction.delete_table()
        socket.commit(transaction)

    for family in Family:
        for name in (schema.STANDBY_TABLE, schema.TABLE):
            repeated(partial(remove, family, name))
    return tuple(removed)
