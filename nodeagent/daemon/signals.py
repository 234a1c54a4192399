"""The agent's reactions to signals."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine

from nodeagent.daemon.loop_failures import LoopFailures

logger = logging.getLogger(__name__)


async def run_until_signal(
    work: Coroutine[None, None, None],
    *,
    stopping: Callable[[], None],
    reload: Callable[[], None] | None = None,
) -> None:
    """Runs `work` until it ends, or until SIGTERM or SIGINT cancels it (the normal end). SIGHUP calls `reload`, also
    one that arrived while it was blocked.

    stopping: called before `work` is cancelled. Raises what `work` raises.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(LoopFailures(loop.time))
    running = asyncio.ensure_future(work)

    def stop() -> None:
        stopping()
        running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        await running
    except asyncio.CancelledError:
        logger.info("stopped; the rules stay in place")
