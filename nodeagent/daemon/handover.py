"""Hands the node from one agent to the next in pods: both run for a while, because the new pod is started first
(`maxSurge`).

The processes of a pod end with its first one, also the DNS process. So an agent that receives SIGTERM releases tables
and ports at once, but stays until the next agent's DNS process answers and has retired the one of this pod. The next
agent reads everything that will be programmed, and starts when no other process owns the tables.
"""

import asyncio
import logging
import os

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.05


def have_other_owner(netlink: Ruleset) -> bool:
    """Returns whether another living process owns a table of ours. Raises NotPermitted and KernelUnclear."""
    return any(_has_other_owner(netlink, family) for family in Family)


async def until_tables_are_free(netlink: Ruleset) -> None:
    """Waits until no other living process owns a table of ours. Raises NotPermitted and KernelUnclear."""
    waits = False
    while have_other_owner(netlink):
        if not waits:
            logger.info("another agent runs on this node: waiting until it hands over")
            waits = True
        await asyncio.sleep(LOOK_SECONDS)


async def until_children_have_ended(seconds: float) -> None:
    """Waits until the children of this process have ended, but at most this long."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    while _has_children():
        if clock() >= end:
            logger.warning("no other agent took cluster DNS over within %g s", seconds)
            return
        await asyncio.sleep(LOOK_SECONDS)


def _has_other_owner(netlink: Ruleset, family: Family) -> bool:
    header = KernelTable(netlink, family, {}).header()
    return header is not None and header.owner not in {0, netlink.port}


def _has_children() -> bool:
    """Returns whether a child still runs; reaps those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
