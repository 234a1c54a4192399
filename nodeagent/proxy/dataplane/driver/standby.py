"""A second table that serves while our table is rebuilt.

A table cannot be replaced without harm in one commit. A packet that is in the old one at that instant finds its sets empty, and
the new one has no ranges until the kernel has published them, a few milliseconds later (`range_changes.py`). So one table stays
hooked, with all its content in force, through every step; each is one commit:

    1. fill the standby table            the old table serves
    2. hook it, right behind the old one it serves what the old table does not
    3. unhook the old table              the standby serves; a packet that is in the old one finds all it looks for
    4. delete the old table, fill the new one
    5. hook the new table                it serves; the standby, behind it, serves what it does not
    6. unhook the standby
    7. delete it

An agent that is killed in between leaves a table that serves; the next agent continues from there.
"""

from collections.abc import Callable, Mapping

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import LearnedAffinity
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected
from nodeagent.proxy.dataplane.image.affinity import ValidEndpoints, valid_entries
from nodeagent.proxy.dataplane.image.carried_counts import Counts
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec

Fill = Callable[[LearnedAffinity], tuple[Transaction, Transaction]]
"""Returns, for what clients learned, two transactions: the standby table without its hooks, and its hooks."""

_ATTEMPTS = 3
"""A client may learn another endpoint just when its old entry is restored."""


class Standby:
    """Keeps the standby table, which serves while our own table is rebuilt. Blocking.

    commit: applies a transaction, whatever others changed meanwhile. present: there is a standby table, made by this process or
    by one that ended.
    """

    def __init__(
        self, family: Family, specs: Mapping[str, SetSpec], socket: Ruleset, commit: Callable[[Transaction], None]
    ) -> None:
        self.present = False
        self._family = family
        self._specs = specs
        self._commit = commit
        self._served = KernelTable(socket, family, specs)
        self._standby = KernelTable(socket, family, specs, name=schema.STANDBY_TABLE)

    def find(self) -> None:
        """Checks whether the kernel has a standby table."""
        self.present = self._standby.header() is not None

    def serve(self, fill: Fill, valid: ValidEndpoints) -> None:
        """Makes the standby table serve in place of ours: steps 1 to 3 above. Does nothing if our table has no hooks: then nothing is
        served, or a standby table serves already."""
        hooks = self._served.base_chains()
        if not hooks:
            return
        if self.present:
            self._unhook(self._standby, schema.STANDBY_TABLE)
            self._delete()
        self.present = True
        for step in fill(self.learned(valid)):
            self._commit(step)
        self._unhook(self._served, schema.TABLE)

    def learned(self, valid: ValidEndpoints) -> LearnedAffinity:
        """Returns what clients learned in either table, as far as it is valid."""
        standby = _valid(self._standby, valid) if self.present else {}
        return {**_valid(self._served, valid), **standby}

    def retire(self, valid: ValidEndpoints) -> Counts:
        """Makes our table serve alone: steps 6 and 7. Copies what clients learned into our table. Returns how many connections the standby counted."""
        self._unhook(self._standby, schema.STANDBY_TABLE)
        counts = self._standby.counts()
        self._hand_over(_valid(self._standby, valid), valid)
        self._delete()
        return counts

    def _hand_over(self, learned: LearnedAffinity, valid: ValidEndpoints) -> None:
        for _ in range(_ATTEMPTS):
            known = _valid(self._served, valid)
            transaction = Transaction(self._family, self._specs)
            transaction.restore_affinity({key: entry for key, entry in learned.items() if key not in known})
            try:
                self._commit(transaction)
            except CommitRejected:
                continue
            return

    def _unhook(self, table: KernelTable, name: str) -> None:
        transaction = Transaction(self._family, self._specs, name)
        for chain in table.base_chains():
            transaction.delete_chain(chain)
        self._commit(transaction)

    def _delete(self) -> None:
        transaction = Transaction(self._family, self._specs, schema.STANDBY_TABLE)
        transaction.delete_table()
        self._commit(transaction)
        self.present = False


def _valid(table: KernelTable, valid: ValidEndpoints) -> LearnedAffinity:
    dump = table.affinity()
    return {} if dump is None else valid_entries(dump, valid)
