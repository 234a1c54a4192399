"""A single run: programs the present objects, leaves the result in place and ends."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

from nodeagent.config.agent_config import AgentConfig
from nodeagent.daemon.agent import Agent
from nodeagent.daemon.collector import collect_hardly
from nodeagent.daemon.process_limits import claim_resources
from nodeagent.model.problem import Problem
from nodeagent.model.problem_subjects import OF_THE_CONFIGURATION, OF_THE_NODE
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.runtime.systemd import SystemdNotifier

_NOT_OF_OBJECTS = (*OF_THE_CONFIGURATION, *OF_THE_NODE)


class ProblemsRemain(Exception):
    """Everything possible is programmed, but not all objects are in effect; one line for a person."""


class NotInTime(Exception):
    """The run did not end in time; one line says what it was waiting for."""


async def run_once(
    config: AgentConfig,
    environment: dict[str, str],
    notifier: SystemdNotifier,
    *,
    within_seconds: float | None = None,
) -> None:
    """Programs the present state, within `within_seconds` (None: no limit).

    Raises what `Agent` raises, NotInTime and ProblemsRemain.
    """
    claim_resources(config.process.oom_score_adj)
    collect_hardly()
    with closing(Ruleset()) as netlink:
        agent = Agent(config, environment, netlink=netlink, notifier=notifier)
        try:
            async with asyncio.timeout(within_seconds) as limit:
                await agent.program_once()
        except TimeoutError as error:
            if within_seconds is None or not limit.expired():
                raise
            raise NotInTime(f"not done within {within_seconds:g} seconds: {agent.awaited}") from error
    raise_if_problems_remain(agent.problems)


def raise_if_problems_remain(problems: Sequence[Problem]) -> None:
    """Raises ProblemsRemain, except for problems of only the configuration or the node: every object may be in effect."""
    remaining = [problem for problem in problems if not problem.subject.startswith(_NOT_OF_OBJECTS)]
    if remaining:
        more = f", and {len(remaining) - 1} more (see the log)" if len(remaining) > 1 else ""
        raise ProblemsRemain(f"not everything is in effect: {remaining[0]}{more}; --allow-problems accepts that")
