"""Observes the lab as long as there are watchers, and sends them its state."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from nodeagent.lab import lab_status
from nodeagent.lab.cluster import LiveCluster, RunningLoad
from nodeagent.lab.lab_objects import NAMESPACE
from nodeagent.lab.lab_plan import SERVICE
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.load_generator import ClusterLoad, find_service, paths_to, stopped_at_exit
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.page import page_state
from nodeagent.lab.page.cuts import Cuts
from nodeagent.lab.page.looks import look_at, names_of, tracked_on
from nodeagent.lab.supervisor_messages import LoadSample

TELL_EVERY = 2.0
"""Seconds after which watchers receive the state even if no observation has ended."""
LOADS_EVERY = 1.0
NODES_EVERY = 1.0
TRACKED_EVERY = 4.0
REST = 4.0
"""The pause after an observation is at least this many times its duration."""
POINTS = 180
MOST_FAULT_PERIODS = 50
OWN_RATE = 60.0
OWN_TIMEOUT = 2.0


class Watch:
    """What the page shows of one lab; observes it while there are watchers. work: runs functions in the lab's thread."""

    def __init__(self, cluster: LiveCluster, work: Work, cuts: Cuts) -> None:
        self._cluster = cluster
        self._work = work
        self._present = cluster.faults
        self._loads = cluster.loads
        self._cuts = cuts
        self._nodes: dict[str, tuple[page_state.NodeLook, page_state.NodeLook | None]] = {}
        self._samples: dict[RunningLoad, tuple[LoadSample, LoadSample | None]] = {}
        self._tracked: tuple[page_state.Tracked, ...] = ()
        self._points: deque[page_state.Point] = deque(maxlen=POINTS)
        self._fault_periods: list[page_state.FaultPeriod] = []
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._own: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def close(self) -> None:
        """Ends the page's load and all observations; a watcher that arrives later starts new ones."""
        looking, self._looking = self._looking, None
        await self.stop_load()
        await _cancel(looking)

    async def states(self) -> AsyncGenerator[bytes, None]:
        """Yields the lab's state as JSON: at once, after each change, and at least every TELL_EVERY seconds."""
        async with self._watched():
            while self._looking is not None and not self._looking.done():
                news = self._news
                yield self._state()
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), TELL_EVERY)

    def notify(self) -> None:
        """Wakes all that wait for the next state."""
        self._news.set()
        self._news = asyncio.Event()

    @property
    def loading(self) -> bool:
        """Whether the load that the page started is running."""
        return self._own is not None and not self._own.done()

    def start_load(self) -> None:
        """Starts the page's load, if it does not run and there are watchers; it ends with the last watcher."""
        if not self.loading and self._watchers:
            self._own = asyncio.create_task(self._go_on_loading(), name="load of the page")

    async def stop_load(self) -> None:
        """Ends the page's load, if it runs."""
        own, self._own = self._own, None
        await _cancel(own)

    async def _go_on_loading(self) -> None:
        def begin() -> ClusterLoad:
            ways = paths_to(self._cluster, find_service(self._cluster, f"{NAMESPACE}/{SERVICE}"))
            return ClusterLoad(self._cluster, ways, "TCP", OWN_RATE, OWN_TIMEOUT)

        with suppress(LabError):  # the API server does not answer: then there is no load
            async with stopped_at_exit(self._work, begin):
                self.notify()
                await asyncio.Event().wait()

    @asynccontextmanager
    async def _watched(self) -> AsyncGenerator[None, None]:
        self._watchers += 1
        if self._looking is None or self._looking.done():
            # Not in the task: it has not started when the first state is sent, which would show old observations.
            self._samples, self._nodes, self._tracked = {}, {}, ()
            self._looking = asyncio.create_task(self._look(), name="looks of the page")
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                await self.close()

    async def _look(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_repeatedly(self._look_at_loads, LOADS_EVERY), name="looks at loads")
            group.create_task(_repeatedly(self._look_at_nodes, NODES_EVERY), name="looks at nodes")
            group.create_task(_repeatedly(self._look_at_tables, TRACKED_EVERY), name="looks at connection tables")

    async def _look_at_loads(self) -> None:
        samples = await self._work(lambda: {load: load.sample() for load in list(self._loads)})
        self._samples = {key: (one, self._samples.get(key, (None, None))[0]) for key, one in samples.items()}
        self._points.append(page_state.point_of(time.monotonic(), list(self._samples.values())))
        self.notify()

    async def _look_at_nodes(self) -> None:
        def look() -> dict[str, page_state.NodeLook]:
            return {name: look_at(self._cluster, name) for name in self._cluster.nodes}

        looks = await asyncio.to_thread(look)
        first = not self._nodes
        self._nodes = {name: (one, self._nodes.get(name, (None, None))[0]) for name, one in looks.items()}
        if first:
            self.notify()

    async def _look_at_tables(self) -> None:
        def look() -> tuple[page_state.Tracked, ...]:
            names = names_of(self._cluster)
            return page_state.most_tracked(
                one for node in self._cluster.nodes for one in tracked_on(self._cluster, node, names)
            )

        self._tracked = await asyncio.to_thread(look)

    def _state(self) -> bytes:
        settings = self._cluster.settings
        self._fault_periods = page_state.fault_periods_at(time.monotonic(), self._fault_periods, self._present)[
            -MOST_FAULT_PERIODS:
        ]
        talks = page_state.together(one for pair in self._samples.values() for one in page_state.talks_of(*pair))
        answers = page_state.answers_by_pod(talks)
        pods: dict[str, dict[str, float]] = {name: {} for name in self._cluster.nodes}
        for name, (_, node) in list(self._cluster.pods.items()):
            pods[node][name] = answers.get(name, 0.0)
        nodes = [
            page_state.node_state(
                name,
                self._cluster.nodes[name][1].addresses,
                looks,
                cut=name in self._cuts.nodes,
                pods=pods[name],
            )
            for name, looks in self._nodes.items()
        ]
        return msgspec.json.encode(
            {
                "lab": settings.name,
                "families": ["IPv4", "IPv6"] if settings.ipv6 else ["IPv4"],
                "api": lab_status.api_state(self._cluster),
                "at": time.monotonic(),
                "nodes": nodes,
                "services": page_state.service_states(list(self._nodes.values())),
                "talks": talks,
                "tracked": self._tracked,
                "points": list(self._points),
                "faults": self._present,
                "troubles": self._fault_periods,
                "loads": len(self._loads),
                "loading": self.loading,
            }
        )


async def _repeatedly(look: Callable[[], Awaitable[None]], every: float) -> None:
    """Calls `look` every `every` seconds until cancelled; after a slow call, not before REST times its duration."""
    while True:
        began = time.monotonic()
        with suppress(LabError, OSError):  # a member is being replaced
            await look()
        await asyncio.sleep(max(every, REST * (time.monotonic() - began)))


async def _cancel(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
