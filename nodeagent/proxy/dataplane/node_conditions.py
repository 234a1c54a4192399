"""Looks at the node periodically while the agent runs: its sysctls, its connection table and its reverse path filter.

Checks that take longer have files of their own, and only `run` does them.
"""

import asyncio
from collections.abc import Callable, Iterable

from nodeagent.model.problem import Problem
from nodeagent.model.reports import ConnectionTable, NodeReport
from nodeagent.proxy.dataplane.connection_table import read_connection_table, table_problems
from nodeagent.proxy.dataplane.connection_watch import ConnectionWatch
from nodeagent.proxy.dataplane.endpoint_route_watch import EndpointRouteWatch
from nodeagent.proxy.dataplane.followed_sample import LOST, STOPPED
from nodeagent.proxy.dataplane.hook_order_watch import HookOrderWatch
from nodeagent.proxy.dataplane.node_sysctls import NodeSysctls
from nodeagent.proxy.dataplane.reverse_path import ReversePathFilter
from nodeagent.proxy.dataplane.source_port_watch import SourcePortWatch

LOOK_SECONDS = 5.0
"""docs/metrics.md states what a look costs."""


class NodeConditions:
    """Checks the node. report: receives all problems of the node at each look. read: reads the connection table. connections:
    a watch that runs by itself, for its figures. more: returns further problems to report."""

    def __init__(
        self,
        sysctls: NodeSysctls,
        report: Callable[[Iterable[Problem]], None],
        read: Callable[[], ConnectionTable | None] = read_connection_table,
        reverse_path: ReversePathFilter | None = None,
        source_ports: SourcePortWatch | None = None,
        hook_order: HookOrderWatch | None = None,
        endpoint_routes: EndpointRouteWatch | None = None,
        connections: ConnectionWatch | None = None,
        more: Callable[[], tuple[Problem, ...]] = tuple,
    ) -> None:
        self._sysctls = sysctls
        self._report = report
        self._read = read
        self._reverse_path = reverse_path or ReversePathFilter()
        self._source_ports = source_ports or SourcePortWatch()
        self._hook_order = hook_order or HookOrderWatch()
        self._endpoint_routes = endpoint_routes or EndpointRouteWatch(dict)
        self._connections = connections
        self._more = more
        self.last = NodeReport()

    async def run(self) -> None:
        """Checks all conditions periodically, until cancelled."""
        while True:
            await self._source_ports.look()
            await self._hook_order.look()
            await self._endpoint_routes.look()
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Looks once and reports all problems."""
        before, table = self.last.connection_table, self._read()
        of_table = () if table is None else table_problems(table, before)
        of_filter = self._reverse_path.problems()
        of_order, watch = self._hook_order.problems(), self._connections
        self.last = NodeReport(
            table,
            self._reverse_path.dropped,
            self._source_ports.taken,
            len(of_order),
            len(self._endpoint_routes.last.lost),
            *((0, 0, 0) if watch is None else (watch.count(STOPPED), watch.count(LOST), watch.times)),
        )
        of_ways = (*of_order, *self._endpoint_routes.problems(), *self._more())
        self._report((*self._sysctls.problems(), *of_table, *of_filter, *self._source_ports.problems(), *of_ways))
