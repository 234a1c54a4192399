"""All metrics of an agent, and the server that answers with them."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nodeagent.model.addresses import Family
from nodeagent.model.name_counts import NameCounts
from nodeagent.model.problem import Retryable, Unusable
from nodeagent.model.reports import KernelCounts, MapFill
from nodeagent.proxy.observe.metrics.agent_figures import AgentFigures, Views
from nodeagent.proxy.observe.metrics.change_figures import ChangeFigures
from nodeagent.proxy.observe.metrics.client_figures import ClientFigures
from nodeagent.proxy.observe.metrics.kube_proxy_figures import KubeProxyFigures, ProxyViews
from nodeagent.proxy.observe.metrics.metrics_answers import MetricsAnswers
from nodeagent.proxy.observe.metrics.name_figures import NameFigures
from nodeagent.proxy.observe.metrics.service_series import ENDPOINTS, ServiceSeries, about_endpoint
from nodeagent.proxy.observe.status_page.book import ServiceBook
from nodeagent.proxy.observe.status_page.status_answers import Journal, Reasons, StatusPage
from nodeagent.runtime.figures.instruments import Instrument, gauge
from nodeagent.runtime.serving.origins import AllowedHosts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class About:
    """Constants of the agent. source: where objects come from, as text for users. config: as JSON. most_services: service ports with a
    series of their own; most_endpoints: likewise, if they are counted. host_names: of the server, besides its addresses."""

    version: str
    node: str
    source: str
    config: bytes
    most_services: int
    most_endpoints: int = 0
    host_names: tuple[str, ...] = ()


class Metrics:
    """Create and use it inside one event loop. read_counts: reads the kernel's counters; blocking, runs in a thread. ready: None if
    ready, else why not. reasons: why Services do not work. clock: loop time; wall: seconds of the time of day. journal: of
    passes and problems, for users. changes, requests: counters that other parts update, made before this object."""

    def __init__(
        self,
        families: Iterable[Family],
        about: About,
        *,
        changes: ChangeFigures,
        requests: ClientFigures,
        views: Views,
        proxy_views: ProxyViews,
        names: Callable[[], NameCounts],
        read_counts: Callable[[], KernelCounts],
        ready: Callable[[], str | None],
        reasons: Reasons,
        clock: Callable[[], float],
        wall: Callable[[], float],
        journal: Journal,
    ) -> None:
        self.kube_proxy = KubeProxyFigures(families, changes, proxy_views, wall=wall)
        self.agent = AgentFigures(views, clock=clock, version=about.version)
        self._maps = views.maps
        self._read_counts = read_counts
        self._series = ServiceSeries(about.most_services)
        self._endpoints = ServiceSeries(about.most_endpoints, ENDPOINTS)
        self._counts = KernelCounts()
        self._reading = asyncio.Lock()
        self.book = ServiceBook()
        page = StatusPage(
            self.book,
            journal,
            counts=self.kernel_counts,
            about={"version": about.version, "node": about.node, "source": about.source},
            ready=ready,
            reasons=reasons,
            clock=clock,
        )
        self.answers = MetricsAnswers(
            (self.kube_proxy, self.agent, requests, NameFigures(names), self),
            late=self._service_series,
            config=about.config,
            version=about.version,
            ready=ready,
            clock=clock,
            hosts=AllowedHosts(about.host_names),
            page=page.answer,
        )

    async def kernel_counts(self) -> KernelCounts:
        """Returns the present counts; the last ones if the kernel cannot be read."""
        async with self._reading:
            try:
                self._counts = await asyncio.to_thread(self._read_counts)
            except (Retryable, Unusable, OSError) as error:
                logger.debug("counters were not read: %s", error)
            return self._counts

    def instruments(self) -> Iterator[Instrument]:
        """Yields how full sets and maps are: our own as they are, those that the kernel fills as of the last reading."""
        return map_fills((*self._maps(), *self._counts.learned))

    async def _service_series(self) -> bytes:
        counts = await self.kernel_counts()
        return await asyncio.to_thread(self._write, counts)

    def _write(self, counts: KernelCounts) -> bytes:
        text = self._series.text([found.by_key.values() for found in counts.frontends])
        if not counts.endpoints:
            return text
        picked = [
            [
                (times, about_endpoint(name, found.family, endpoint))
                for (name, endpoint), times in found.by_endpoint.items()
            ]
            for found in counts.endpoints
        ]
        return text + self._endpoints.text(picked)


def map_fills(fills: Iterable[MapFill]) -> Iterator[Instrument]:
    """Yields how many elements sets and maps have, and how many fit."""
    elements = gauge("nodeagent_map_elements", "Elements of a set or map", "ip_family", "map")
    limit = gauge("nodeagent_map_limit_elements", "How many fit; other maps grow", "ip_family", "map")
    for fill in fills:
        elements.set(fill.elements, fill.family.value, fill.name)
        if fill.limit is not None:
            limit.set(fill.limit, fill.family.value, fill.name)
    yield from (elements, limit)
