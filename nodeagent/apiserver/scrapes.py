"""`/metrics` of the API server: requests, stored objects, calls to etcd, readiness, the process."""

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from nodeagent.apiserver.api.request_figures import REQUEST_SECONDS, RequestFigures
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.resources import Catalog
from nodeagent.runtime.figures.instruments import Histogram, Instrument, copy_of, counter, gauge

if TYPE_CHECKING:
    from nodeagent.runtime.figures.exposition import Exposition

_CALL_LABELS: Final = ("operation", "group", "resource")


class EtcdFigures:
    """Counts calls to etcd by operation and resource (k8s.io/apiserver/pkg/storage/etcd3/metrics/metrics.go)."""

    def __init__(self, catalog: Catalog) -> None:
        self._names = {row.stored_in: (row.group, row.plural) for row in catalog.rows if not row.converts}
        self._seconds = Histogram(
            "etcd_request_duration_seconds", "Until etcd answered a call", REQUEST_SECONDS, _CALL_LABELS
        )
        self._calls = counter("etcd_requests_total", "Calls to etcd", *_CALL_LABELS)
        self._failures = counter("etcd_request_errors_total", "Calls that etcd did not carry out", *_CALL_LABELS)

    def called(self, operation: str, collection: str, seconds: float, failed: bool) -> None:
        """Records a call. For a collection that is no resource, the labels group and resource are empty."""
        labels = (operation, *self._names.get(collection, ("", "")))
        self._seconds.observe(seconds, *labels)
        self._calls.add(*labels)
        if failed:
            self._failures.add(*labels)

    def instruments(self) -> Iterator[Instrument]:
        """Yields all metrics."""
        yield from (self._seconds, self._calls, self._failures)


class Scrapes:
    """Renders the metrics. failing: returns the names of the readiness checks that fail; version: the fields of `/version`.
    certificates: yields the metrics of this server's certificates."""

    def __init__(
        self,
        requests: RequestFigures,
        calls: EtcdFigures,
        store: Store,
        catalog: Catalog,
        *,
        checks: Iterable[str],
        failing: Callable[[], list[str]],
        version: Mapping[str, str],
        certificates: Callable[[], Iterable[Instrument]] = tuple,
    ) -> None:
        self._requests = requests
        self._calls = calls
        self._store = store
        self._catalog = catalog
        self._checks = tuple(checks)
        self._failing = failing
        self._version = version
        self._certificates = certificates
        self._exposition: Exposition | None = None

    async def text(self) -> bytes:
        """Returns the text of a scrape of `/metrics`."""
        return await self.text_of(self._instruments())

    async def text_of(self, instruments: Iterable[Instrument]) -> bytes:
        """Returns the text of these metrics. Copies their values here and renders them in a thread, outside the loop."""
        copied = [copy_of(one) for one in instruments]
        return await asyncio.to_thread(self._write, copied)

    def _write(self, instruments: list[Instrument]) -> bytes:
        if self._exposition is None:
            # A server that is never scraped does not load prometheus-client.
            from nodeagent.runtime.figures.exposition import Exposition  # noqa: PLC0415

            self._exposition = Exposition()
        return self._exposition.text(instruments)

    def _instruments(self) -> Iterator[Instrument]:
        yield from self._requests.instruments()
        yield from self._calls.instruments()
        yield from self._stored()
        yield from self._certificates()
        failing = self._failing()
        yield gauge(
            "kubernetes_healthcheck",
            "1 for a check of /readyz that passes, 0 for one that fails",
            "name",
            "type",
            values={(name, "readyz"): float(name not in failing) for name in self._checks},
        )
        yield gauge(
            "kubernetes_build_info",
            "1; what /version says is in labels",
            *("git_version", "major", "minor", "platform", "python_version"),
            values={
                (
                    *(self._version[name] for name in ("gitVersion", "major", "minor", "platform")),
                    platform.python_version(),
                ): 1
            },
        )

    def _stored(self) -> Iterator[Instrument]:
        old = gauge("apiserver_storage_objects", "Objects that are stored, by resource and group", "resource")
        new = gauge("apiserver_resource_objects", "Objects that are stored", "group", "resource")
        for row in self._catalog.rows:
            if not row.converts:
                count = len(self._store.collection(row.stored_in).records)
                old.set(count, f"{row.plural}.{row.group}" if row.group else row.plural)
                new.set(count, row.group, row.plural)
        yield from (old, new)
