"""A run of faults in a directory: index.html, and for each fault KIND.svg and KIND.csv."""

from collections.abc import Sequence
from pathlib import Path

from nodeagent.lab.fault_verdict import NotDone
from nodeagent.lab.report.plot import plot
from nodeagent.lab.report.report_document import page, rows
from nodeagent.lab.supervisor_messages import FaultRecord, FaultReport

INDEX = "index.html"


class ReportFolder:
    """Creates the directory, with missing parents. Replaces files of an earlier run. Raises OSError."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._drawn: set[str] = set()

    @property
    def index(self) -> Path:
        """The file to open in a browser."""
        return self._path / INDEX

    def add(self, report: FaultReport, record: FaultRecord) -> None:
        """Writes the plot and the numbers of a fault."""
        (self._path / f"{report.kind}.svg").write_text(plot(report, record), encoding="utf-8")
        (self._path / f"{report.kind}.csv").write_text(rows(record), encoding="utf-8")
        self._drawn.add(report.kind)

    def finish(self, results: Sequence[FaultReport | NotDone]) -> None:
        """Writes the page for all faults."""
        self.index.write_text(page(results, self._drawn), encoding="utf-8")
