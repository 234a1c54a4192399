"""A scrape's text, read by prometheus-client's own parser."""

from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.runtime.figures.exposition import Exposition
from nodeagent.runtime.figures.instruments import Instrument

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Reader:
    """Reads text, and what instruments become in it."""

    def of(self, text: bytes) -> Samples:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        }

    def instruments(self, instruments: Iterable[Instrument]) -> Samples:
        return self.of(Exposition().text(instruments))

    @staticmethod
    def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
        return name, frozenset(labels.items())


@pytest.fixture
def reader() -> Reader:
    return Reader()
