"""Sets the sysctls that this node needs, and reports those that differ."""

import logging
import os
from collections.abc import Callable, Collection

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.reports import DriftReport
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
    found: called with a sysctl that another program has changed, and that is set again.
    """

    def __init__(
        self, conntrack: ConntrackOptions, *, manage: bool, found: Callable[[DriftReport], None] = lambda _: None
    ) -> None:
        self._conntrack = conntrack
        self._manage = manage
        self._found = found
        self._missed: dict[Sysctl, Problem] = {}
        self._required: dict[Sysctl, None] = {}

    def forward(self, families: Collection[Family]) -> None:
        """Enables the forwarding of packets to endpoints."""
        self._set(required_sysctls(families))

    def tune_conntrack(self) -> None:
        """Sets the conntrack sysctls. Call it when the tables exist: they load nf_conntrack on a machine that has just booted."""
        self._set(required_sysctls((), conntrack=self._conntrack, cores=os.cpu_count() or 1))

    def problems(self) -> tuple[Problem, ...]:
        """Sets what another program has changed, once more; returns a problem for each sysctl that differs now."""
        before, self._missed = self._missed, {}
        for one in {**self._required, **before}:
            problem = still_missed(one, before.get(one))
            if problem is not None and self._manage and one not in before:
                self._set((one,), again=True)
            elif problem is not None:
                self._missed[one] = problem
        return tuple(self._missed.values())

    def _set(self, required: Collection[Sysctl], *, again: bool = False) -> None:
        self._required.update(dict.fromkeys(required))
        for result in (apply_sysctls if self._manage else check_sysctls)(required):
            wanted = result.sysctl
            if result.problem is not None:
                self._missed[wanted] = result.problem
            elif result.outcome is SysctlOutcome.WRITTEN:
                self._required[wanted] = None
                logger.info("sysctl %s: %s -> %d, so that %s", wanted.name, result.found, wanted.value, wanted.why)
                if again:
                    self._found(DriftReport("sysctl", "value", f"{wanted.name} was {result.found}, not {wanted.value}"))
