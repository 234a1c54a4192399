"""Looks at the node now and then while the agent runs: its sysctls and its connection table."""

import asyncio
from collections.abc import Callable, Iterable

from nodeagent.model.problem import Problem
from nodeagent.model.reports import ConnectionTable
from nodeagent.proxy.dataplane.connection_table import read_connection_table, table_problems
from nodeagent.proxy.dataplane.node_sysctls import NodeSysctls

LOOK_SECONDS = 5.0
"""A look reads about a dozen small files below /proc, which takes a fraction of a millisecond."""


class NodeConditions:
    """report: takes all problems of the node at each look. read: reads the connection table."""

    def __init__(
        self,
        sysctls: NodeSysctls,
        report: Callable[[Iterable[Problem]], None],
        read: Callable[[], ConnectionTable | None] = read_connection_table,
    ) -> None:
        self._sysctls = sysctls
        self._report = report
        self._read = read
        self.connection_table: ConnectionTable | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Once."""
        before, self.connection_table = self.connection_table, self._read()
        of_table = () if self.connection_table is None else table_problems(self.connection_table, before)
        self._report((*self._sysctls.problems(), *of_table))
