"""What a change costs, counted and not timed, so that it is the same on every machine: `unshare -n python -m tests.bench.work_counts`.

A whole agent runs in this thread, as `nodeagent run` does it, and an API server in another one. What this thread does from the first byte of
a change until the observers of its pass have returned is counted by `sys.setprofile`: calls of functions, and those that are system
calls. Of several turns the first quartile is printed: timers of other parts fire in some of them, and one needs less than all others.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType

from nodeagent.config.load import load_config
from nodeagent.daemon.agent import Agent
from nodeagent.daemon.event_loop import DaemonLoop
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.observe.admin.journal import KEPT
from nodeagent.runtime.systemd import SystemdNotifier
from tests.bench.watch_server import NODE, POD_RANGE, WatchServer, changes, kubeconfig

SERVICES = 200
HELD_SERVICES = 1000
"""For the memory: of more, what an agent holds for itself is little of an element."""
ENDPOINTS = 10
TOGETHER = 8
"""Changes that one pass takes."""
TURNS = 20
ROUNDS = 3
"""In which memory is measured, and the least counts: a leak shows in each."""
QUIET_SECONDS = 0.01
SYSTEM_MODULES = frozenset({"posix", "io", "_io"})
SYSTEM_TYPES = frozenset({"socket", "epoll", "FileIO"})
FIRST, LAST = "ListWatch.receive_bytes", "PassObservers.passed"


@dataclass
class Work:
    """What was done for the changes of one pass."""

    calls: int = 0
    system_calls: Counter[str] = field(default_factory=Counter)


class Recorder:
    """Counts from the first change that arrives until a pass has ended."""

    def __init__(self) -> None:
        self.by_function = Counter[str]()
        self._work: Work | None = None
        self.done: list[Work] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        work = self._work
        name = frame.f_code.co_qualname
        if work is None:
            if event == "call" and name == FIRST:
                self._work = Work(1)
            return
        if event == "call":
            work.calls += 1
            self.by_function[f"{name} {Path(frame.f_code.co_filename).name}:{frame.f_code.co_firstlineno}"] += 1
        elif event == "c_call":
            work.calls += 1
            if (made := _system_call(argument)) is not None:
                work.system_calls[made] += 1
        elif event == "return" and name == LAST:
            self.done.append(work)
            self._work = None


def _system_call(function: object) -> str | None:
    """Returns the name of a built-in function that asks the kernel for something."""
    owner = getattr(function, "__self__", None)
    kind = type(owner).__name__
    if kind in SYSTEM_TYPES or getattr(function, "__module__", None) in SYSTEM_MODULES:
        return str(getattr(function, "__name__", kind))
    return None


class ServerThread:
    """The API server, in a thread and a loop of its own."""

    def __init__(self, services: int) -> None:
        self._server = WatchServer(services, ENDPOINTS)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()

    def send(self, lines: bytes) -> None:
        """Sends lines of the watch with one write; returns before they have arrived."""
        asyncio.run_coroutine_threadsafe(self._server.send(lines), self._loop).result()


@asynccontextmanager
async def running_agent(port: int) -> AsyncIterator[Callable[[], int]]:
    """Runs an agent that is ready until the block ends. Yields a function that returns the number of its passes that wrote."""
    with tempfile.TemporaryDirectory() as directory, closing(Ruleset()) as netlink:
        place = Path(directory) / "kubeconfig"
        place.write_text(kubeconfig(port))
        flags = {
            "--kubeconfig": str(place),
            "--cluster-cidr": POD_RANGE,
            "--socket": f"{directory}/socket",
            "--events": "false",
            "--table-ownership": "plain",  # the same on kernels that know no owners
        }
        loaded = load_config(file=None, environment={}, flags=flags, hostname=NODE)
        agent = Agent(loaded.config, {}, netlink=netlink, notifier=SystemdNotifier({}))
        serving = asyncio.create_task(agent.serve())
        book = agent._metrics.book
        while not book.services and not serving.done():  # noqa: ASYNC110 - an event would be a part of what is counted
            await asyncio.sleep(0.01)
        yield lambda: book.revision
        serving.cancel()
        await asyncio.wait([serving])


async def _send(server: ServerThread, lines: bytes, revision: Callable[[], int]) -> None:
    """Sends changes and waits until they are in force."""
    before = revision()
    server.send(lines)
    while revision() == before:  # noqa: ASYNC110 - as above
        await asyncio.sleep(QUIET_SECONDS)
    await asyncio.sleep(QUIET_SECONDS)


async def count_work(*, show: int = 0) -> dict[str, float]:
    """Returns the calls of a change that is alone in its pass, and of one that shares it."""
    server, lines = ServerThread(SERVICES), changes(SERVICES, ENDPOINTS)
    found: dict[str, float] = {}
    async with running_agent(server.port) as revision:
        for name, together in (("alone", 1), ("shared", TOGETHER)):
            recorder = Recorder()
            for turn in range(2 * TURNS):
                if turn == TURNS:  # until then, lists of a new length may make chains
                    sys.setprofile(recorder)
                await _send(server, b"".join(islice(lines, together)), revision)
            sys.setprofile(None)
            found[f"calls, {name}"] = _first_quartile(work.calls for work in recorder.done) / together
            found[f"system calls, {name}"] = _first_quartile(w.system_calls.total() for w in recorder.done) / together
            if show:
                least = min(recorder.done, key=lambda work: work.calls)
                print(name, dict(least.system_calls), file=sys.stderr)
                for function, count in recorder.by_function.most_common(show):
                    print(f"{count / len(recorder.done):8.1f} {function}", file=sys.stderr)
    return found


def _first_quartile(counts: Iterable[int]) -> int:
    ordered = sorted(counts)
    return ordered[len(ordered) // 4]


async def count_memory(*, show: int = 0) -> dict[str, float]:
    """Returns the bytes that an agent holds for an element, and what a change leaves behind and takes meanwhile."""
    server, lines = (
        ServerThread(HELD_SERVICES),
        changes(SERVICES, ENDPOINTS),
    )  # what comes and goes concerns some of them

    async def there_and_back() -> None:
        for _ in range(2 * SERVICES // TOGETHER):
            await _send(server, b"".join(islice(lines, TOGETHER)), revision)

    gc.collect()
    tracemalloc.start()
    async with running_agent(server.port) as revision:
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        if show:
            for line in tracemalloc.take_snapshot().statistics("lineno")[:show]:
                print(line, file=sys.stderr)
        for _ in range(KEPT):  # until the journal is full
            await _send(server, next(lines), revision)
        kept, peak = list[int](), list[int]()
        for _ in range(ROUNDS):
            gc.collect()
            before, blocks = tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()
            tracemalloc.reset_peak()
            await there_and_back()
            peak.append(tracemalloc.get_traced_memory()[1] - before)
            gc.collect()
            kept.append(sys.getallocatedblocks() - blocks)
    tracemalloc.stop()
    return {
        "bytes, an element": held / (HELD_SERVICES * (ENDPOINTS + 2)),
        "blocks kept, a change": max(0.0, min(kept) / (2 * SERVICES)),
        "peak bytes, a change": min(peak) / TOGETHER,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--show", type=int, default=0, metavar="N", help="also print the N functions that are called most"
    )
    options = parser.parse_args()
    os.environ["PYTHONHASHSEED"] = "0"
    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        found = runner.run(count_work(show=options.show))
        found |= runner.run(count_memory(show=options.show))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
