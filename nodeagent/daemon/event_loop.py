"""The event loop of the daemon, and its threads for blocking work."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

MOST_WORKERS = 32


class NoThreads(Exception):
    """The kernel starts no thread for this process; one line for a person."""


class Workers(ThreadPoolExecutor):
    """Starts one thread at once and others when needed. If no more can be started, work waits for the running ones.
    Raises NoThreads if not even one can be started."""

    def __init__(self) -> None:
        super().__init__(min(MOST_WORKERS, (os.cpu_count() or 1) + 4), thread_name_prefix="worker")
        self.submit(int).result()

    def _adjust_thread_count(self) -> None:
        """The work is queued already, and a running thread will do it: an error would wrongly report that it is lost."""
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not self._threads:
                raise NoThreads(
                    "no thread can be started: look at `ulimit -u`, TasksMax= of the unit and pids.max of the cgroup"
                ) from error


class DaemonLoop(asyncio.SelectorEventLoop):
    """An event loop that uses `Workers`, and starts no thread to end them. Raises NoThreads."""

    def __init__(self) -> None:
        super().__init__()
        try:
            self._workers = Workers()
        except NoThreads:
            self.close()
            raise
        self.set_default_executor(self._workers)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - asyncio's
        """Waits until all work has ended."""
        self._workers.shutdown()
