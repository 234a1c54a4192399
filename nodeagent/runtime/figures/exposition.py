"""Instruments in Prometheus's text format 0.0.4, written by prometheus-client."""

from collections.abc import Iterable, Iterator
from math import inf

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeagent.runtime.figures.instruments import Figure, Instrument, MetricType


class _SingleScrape(Collector):
    """Returns the instruments of one scrape to prometheus-client."""

    def __init__(self, instruments: Iterable[Instrument]) -> None:
        self._instruments = instruments

    def collect(self) -> Iterator[Metric]:
        return map(_family, self._instruments)


class Exposition:
    """Renders scrapes, and adds the metrics of the process itself."""

    def __init__(self) -> None:
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def text(self, instruments: Iterable[Instrument]) -> bytes:
        """Returns the text of one scrape."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_SingleScrape(list(instruments)))
        return generate_latest(registry) + generate_latest(self._process)


def _family(instrument: Instrument) -> Metric:
    if isinstance(instrument, Figure):
        family = (CounterMetricFamily if instrument.kind is MetricType.COUNTER else GaugeMetricFamily)(
            instrument.name, instrument.help, labels=instrument.labels
        )
        for labels, value in instrument.values.items():
            family.add_metric(labels, value)
        return family
    histogram = HistogramMetricFamily(instrument.name, instrument.help, labels=instrument.labels)
    for labels, seen in instrument.values.items():
        buckets = [(_bound(bound), float(count)) for bound, count in instrument.cumulative(seen)]
        histogram.add_metric(labels, buckets, seen.total)
    return histogram


def _bound(bound: float) -> str:
    """Formats a bound as Go does: for Prometheus, series with another spelling of the same value are other series."""
    return "+Inf" if bound == inf else f"{bound:g}" if bound != int(bound) else str(float(bound)).removesuffix(".0")
