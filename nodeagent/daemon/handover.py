"""One agent hands the node to the next one in pods: both run for a while, because the new pod is started first (`maxSurge`).

The processes of a pod end with its first one, and with it the process that answers names. So an agent that receives SIGTERM
gives tables and ports away at once, and then stays until the next agent's process answers and has retired the one of this pod.
The next agent reads all that is to be programmed, and begins when nobody else owns the tables.
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
    """Whether another process that lives owns a table of ours. Raises NotPermitted and KernelUnclear."""
    return any(_has_other_owner(netlink, family) for family in Family)


async def until_tables_are_free(netlink: Ruleset) -> None:
    """Until no other process that lives owns a table of ours. Raises NotPermitted and KernelUnclear."""
    waits = False
    while have_other_owner(netlink):
        if not waits:
            logger.info("another agent runs on this node: waiting until it hands over")
            waits = True
        await asyncio.sleep(LOOK_SECONDS)


async def until_children_have_ended(seconds: float) -> None:
    """Until the processes that this one has started have ended, for at most so many seconds."""
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    while _has_children():
        if clock() >= end:
            logger.warning("no other agent has taken the names over in %g s", seconds)
            return
        await asyncio.sleep(LOOK_SECONDS)


def _has_other_owner(netlink: Ruleset, family: Family) -> bool:
    header = KernelTable(netlink, family, {}).header()
    return header is not None and header.owner not in {0, netlink.port}


def _has_children() -> bool:
    """Whether one of them still runs; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
