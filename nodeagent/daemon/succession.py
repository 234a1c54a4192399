"""One agent at a time; SIGHUP replaces it by one with the configuration of that moment.

The successor reads its source while the predecessor works on. When it knows everything that will be programmed, the
predecessor ends, and the successor adopts the tables through the same netlink socket: an owned table is never without
owner, and no rule is missing at any time. A successor that fails before that changes nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.config_problems import ConfigError
from nodeagent.config.load import LoadedConfig
from nodeagent.config.options import DEFAULT_SOCKET
from nodeagent.daemon.agent import Agent
from nodeagent.daemon.announcement import announce
from nodeagent.daemon.collector import STARTING_SECONDS, collect_everything, collect_hardly, collect_rarely
from nodeagent.daemon.handover import have_other_owner, until_tables_are_free
from nodeagent.daemon.process_limits import claim_resources
from nodeagent.daemon.startup_probe import probes_succeed
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.runtime.systemd import SystemdNotifier

logger = logging.getLogger(__name__)

RELOAD_SECONDS = 60.0
"""Time for the source of a new configuration to deliver its first full lists; longer than an agent waits for its Node.
"""
COLLECT_AFTER_SECONDS = 2.0
"""Delay after a reload: the predecessor is in cycles by then, which Python rarely collects in a large process."""


class Daemon:
    """Runs agents until cancelled. load: returns the present configuration; raises ConfigError. is_init: whether this
    is the first process of a container, with which all others there end, also the DNS process."""

    def __init__(
        self,
        load: Callable[[], LoadedConfig],
        environment: dict[str, str],
        *,
        is_init: bool = False,
        reload_seconds: float = RELOAD_SECONDS,
    ) -> None:
        self.notifier = SystemdNotifier(environment)
        self._load = load
        self._environment = environment
        self._is_init = is_init
        self._reload_seconds = reload_seconds
        self._hangup = asyncio.Event()
        self._agents: set[Agent] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def reload(self) -> None:
        """Requests to read the configuration again, after a reload in progress has ended."""
        self._hangup.set()

    async def run(self, loaded: LoadedConfig) -> None:
        """Runs until cancelled. Raises what `Agent` raises."""
        with ExitStack() as ends:
            netlink = ends.enter_context(closing(Ruleset()))
            hangup: asyncio.Task[bool] | None = None
            try:
                serving = self._start(loaded, netlink, _former_in_another_pod(loaded.config, netlink, ends))
                while True:
                    hangup = asyncio.create_task(self._hangup.wait(), name="wait for SIGHUP")
                    await asyncio.wait({serving, hangup}, return_when=asyncio.FIRST_COMPLETED)
                    if serving.done():
                        return await serving
                    self._hangup.clear()
                    serving = await self._replace(serving, netlink)
                    asyncio.get_running_loop().call_later(COLLECT_AFTER_SECONDS, collect_everything)
            except asyncio.CancelledError:
                if self._is_init and not loaded.config.dns.handover.seconds:
                    await asyncio.gather(*(agent.leave() for agent in self._agents))
                raise
            finally:
                await _end(*self._tasks, *(() if hangup is None else (hangup,)))

    async def _replace(self, serving: asyncio.Task[None], netlink: Ruleset) -> asyncio.Task[None]:
        """Returns the task of the agent that serves after a reload: a new one, or still the old one."""
        self.notifier.reloading()
        try:
            loaded = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self._refused(str(error).splitlines())
            return serving
        taken_over = asyncio.Event()

        async def take_over() -> None:
            taken_over.set()
            await _end(serving)
            if loaded.config.dns.handover.seconds:  # the one that ended may have waited for another pod's
                await until_tables_are_free(netlink)
            announce(loaded)

        successor = self._start(loaded, netlink, take_over)
        turn = asyncio.create_task(taken_over.wait(), name="wait for the successor")
        await asyncio.wait({successor, turn}, timeout=self._reload_seconds, return_when=asyncio.FIRST_COMPLETED)
        if taken_over.is_set():
            self.notifier.remark("")
            logger.info("reload: the new configuration takes effect")
            return successor
        failure = successor.exception() if successor.done() else None
        await _end(successor, turn)
        if failure is not None:
            self._refused([str(leaf) or repr(leaf) for leaf in leaves_of(failure)])
        else:
            self._refused([f"its source did not list everything within {self._reload_seconds:g} seconds"])
        return serving

    def _refused(self, reasons: list[str]) -> None:
        for reason in reasons:
            logger.error("reload failed, the configuration stays as it was: %s", reason)
        self.notifier.remark(f"reload failed, the configuration stays as it was: {reasons[0]}")
        self.notifier.still_ready()

    def _start(
        self, loaded: LoadedConfig, netlink: Ruleset, end_predecessor: Callable[[], Awaitable[None]] | None = None
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._serve(loaded.config, netlink, end_predecessor), name="agent")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(
        self, config: AgentConfig, netlink: Ruleset, end_predecessor: Callable[[], Awaitable[None]] | None
    ) -> None:
        claim_resources(config.process.oom_score_adj)
        collect_hardly()
        asyncio.get_running_loop().call_later(STARTING_SECONDS, collect_rarely)
        agent = Agent(
            config,
            self._environment,
            netlink=netlink,
            notifier=self.notifier,
            end_predecessor=end_predecessor,
            ready=collect_rarely,
        )
        del end_predecessor  # it holds the predecessor, and with it all that one knew
        self._agents.add(agent)
        try:
            await agent.serve()
        finally:
            self._agents.discard(agent)


def _former_in_another_pod(
    config: AgentConfig, netlink: Ruleset, ends: ExitStack
) -> Callable[[], Awaitable[None]] | None:
    """Returns what the first agent of this process awaits when it knows everything that will be programmed; None if no
    process has the tables. After that, kubelet counts this pod as started, and ends the other one."""
    if not config.dns.handover.seconds:
        return None
    directory = (config.reporting.socket or DEFAULT_SOCKET).parent
    if not have_other_owner(netlink):
        ends.enter_context(probes_succeed(directory))
        return None

    async def stand_by() -> None:
        ends.enter_context(probes_succeed(directory))
        await until_tables_are_free(netlink)

    return stand_by


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yields the exceptions inside nested groups of a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error


async def _end(*tasks: asyncio.Task[bool] | asyncio.Task[None]) -> None:
    """Cancels these tasks and waits until they have cleaned up; ignores how they ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
