"""Sets the sysctls that this node needs, and reports those that differ."""

import logging
import os
from collections.abc import Collection

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.sysctl import (
    ConntrackOptions,
    Sysctl,
    SysctlOutcome,
    apply_sysctls,
    check_sysctls,
    required_sysctls,
    still_missed,
)

logger = logging.getLogger(__name__)


class NodeSysctls:
    """Sets or checks the sysctls that the agent needs.

    manage: write values that differ; otherwise they are only reported. conntrack: the sizes and timeouts of connection tracking.
    """

    def __init__(self, conntrack: ConntrackOptions, *, manage: bool) -> None:
        self._conntrack = conntrack
        self._manage = manage
        self._missed: dict[Sysctl, Problem] = {}
        self._required: dict[Sysctl, None] = {}

    def forward(self, families: Collection[Family]) -> None:
        """Enables the forwarding of packets to endpoints."""
        self._set(required_sysctls(families))

    def tune_conntrack(self) -> None:
        """Sets the conntrack sysctls. Call it when the tables exist: they load nf_conntrack on a machine that has just booted."""
        self._set(required_sysctls((), conntrack=self._conntrack, cores=os.cpu_count() or 1))

    def problems(self) -> tuple[Problem, ...]:
        """Returns a problem for each sysctl that differs now: it could not be set, or another program has changed it since."""
        now = ((one, still_missed(one, self._missed.get(one))) for one in {**self._required, **self._missed})
        self._missed = {one: problem for one, problem in now if problem is not None}
        return tuple(self._missed.values())

    def _set(self, required: Collection[Sysctl]) -> None:
        self._required.update(dict.fromkeys(required))
        for result in (apply_sysctls if self._manage else check_sysctls)(required):
            if result.problem is not None:
                self._missed[result.sysctl] = result.problem
            elif result.outcome is SysctlOutcome.WRITTEN:
                wanted = result.sysctl
                logger.info("sysctl %s: %s -> %d, so that %s", wanted.name, result.found, wanted.value, wanted.why)
