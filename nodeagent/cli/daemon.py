"""One agent at a time; SIGHUP puts one with the configuration of that moment in its place.

The successor reads its source while the predecessor goes on working. Only when it knows all that is to be programmed
does the predecessor end, and the successor adopts the tables through the same netlink socket: an owned table is never
without its owner, and no rule is missing at any time. A successor that does not get that far changes nothing.
"""

import asyncio
import gc
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing

from nodeagent.agent import Agent
from nodeagent.config import ConfigError, LoadedConfig, LogFormat
from nodeagent.dataplane.nft.ruleset import Ruleset
from nodeagent.observe.logging_setup import set_up_logging
from nodeagent.observe.systemd import SystemdNotifier

logger = logging.getLogger(__name__)

RELOAD_SECONDS = 60.0
"""How long the source of a new configuration has for its first full lists; longer than an agent waits for its Node."""
COLLECT_AFTER_SECONDS = 2.0
"""After a reload: what the predecessor knew is in cycles by then, and Python rarely looks for those in a big process."""


class Daemon:
    """Runs agents until cancelled. load: reads the configuration as it is now; raises ConfigError."""

    def __init__(
        self,
        load: Callable[[], LoadedConfig],
        environment: dict[str, str],
        *,
        reload_seconds: float = RELOAD_SECONDS,
    ) -> None:
        self.notifier = SystemdNotifier(environment)
        self._load = load
        self._environment = environment
        self._reload_seconds = reload_seconds
        self._hangup = asyncio.Event()
        self._agents: set[asyncio.Task[None]] = set()

    def reload(self) -> None:
        """Read the configuration again, as soon as a reload that is under way has ended."""
        self._hangup.set()

    async def run(self, loaded: LoadedConfig, *, once: bool, within_seconds: float | None = None) -> None:
        """Until cancelled, or, with `once`, until the present state is programmed, for `within_seconds` seconds at most. Raises
        what `Agent.run` raises."""
        with closing(Ruleset()) as netlink:
            hangup: asyncio.Task[bool] | None = None
            try:
                serving = self._start(self._agent(loaded, netlink), once=once, within_seconds=within_seconds)
                while True:
                    hangup = asyncio.create_task(self._hangup.wait(), name="wait for SIGHUP")
                    await asyncio.wait({serving, hangup}, return_when=asyncio.FIRST_COMPLETED)
                    if serving.done():
                        return await serving
                    self._hangup.clear()
                    serving = await self._replace(serving, netlink)
                    asyncio.get_running_loop().call_later(COLLECT_AFTER_SECONDS, gc.collect)
            finally:
                await _end(*self._agents, *(() if hangup is None else (hangup,)))

    async def _replace(self, serving: asyncio.Task[None], netlink: Ruleset) -> asyncio.Task[None]:
        """The agent that serves after a reload: a new one, or still the old one."""
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
            announce(loaded)

        successor = self._start(self._agent(loaded, netlink, take_over))
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

    def _agent(
        self, loaded: LoadedConfig, netlink: Ruleset, take_over: Callable[[], Awaitable[None]] | None = None
    ) -> Agent:
        return Agent(loaded.config, self._environment, netlink=netlink, notifier=self.notifier, take_over=take_over)

    def _start(self, agent: Agent, *, once: bool = False, within_seconds: float | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(agent.run(once=once, within_seconds=within_seconds), name="agent")
        self._agents.add(task)
        task.add_done_callback(self._agents.discard)
        return task


def announce(loaded: LoadedConfig) -> None:
    """Log as the configuration wants it, and say what of it has no effect."""
    config = loaded.config
    set_up_logging(
        getattr(logging, config.logging.level.upper()),
        as_json=config.logging.format is LogFormat.JSON,
        journald="JOURNAL_STREAM" in os.environ,
    )
    for warning in loaded.warnings:
        logger.warning("config: %s", warning)
    for field in loaded.ignored:
        logger.warning("config: %s is ignored: %s", field.key, field.reason)


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside nested groups of a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error


async def _end(*tasks: asyncio.Task[bool] | asyncio.Task[None]) -> None:
    """Cancel these and wait until they have cleaned up; how they ended is for others to look at."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
