"""The results as a matrix, a line for each failure, and a document (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nodeagent.diagnosis.connectivity.cases import Case, Column, Skipped, Trace
from nodeagent.diagnosis.connectivity.judgement import difference
from nodeagent.diagnosis.connectivity.requests import RequestResult
from nodeagent.model.addresses import endpoint_text

NOT_MEANT = "-"
"""In a field: this connection does not exist from there."""


class CaseOutcome(Struct, frozen=True):
    """How a case ended. happened: what happened instead of what was expected; empty if the case passed."""

    case: Case
    happened: str


class Report(Struct, frozen=True):
    """The outcomes of all cases. traces: nodeagent's lines about a connection on the node that translates it."""

    outcomes: tuple[CaseOutcome, ...]
    skipped: tuple[Skipped, ...]
    traces: Mapping[Trace, tuple[str, ...]] = {}

    @property
    def failures(self) -> tuple[CaseOutcome, ...]:
        return tuple(one for one in self.outcomes if one.happened)

    def rows(self) -> list[dict[str, object]]:
        """Returns a row for each subject, a field for each column: ok, FAILED with counts, skipped, or nothing."""
        names = dict.fromkeys([one.case.row for one in self.outcomes] + [one.row for one in self.skipped])
        return [{"way": name, **{column.value: self._field(name, column) for column in Column}} for name in names]

    def _field(self, row: str, column: Column) -> str:
        tried = [one for one in self.outcomes if (one.case.row, one.case.column) == (row, column)]
        if not tried:
            is_skipped = any((one.row, one.column) == (row, column) for one in self.skipped)
            return "skipped" if is_skipped else NOT_MEANT
        failed = sum(bool(one.happened) for one in tried)
        return f"FAILED {failed}/{len(tried)}" if failed else "ok"

    def failure_lines(self) -> Iterator[str]:
        """Yields one line for each failure, and nodeagent's trace below it; each trace once."""
        seen: set[Trace] = set()
        for one in self.failures:
            yield f"failed: {described(one.case)}: expected: {one.case.expected}; {one.happened}"
            trace = one.case.trace
            if trace is None or trace not in self.traces:
                continue
            if trace in seen:
                yield f"  nodeagent on {trace.node}: as above"
                continue
            seen.add(trace)
            yield f"  nodeagent trace on {trace.node}:"
            yield from (f"    {line}" for line in self.traces[trace])

    def skipped_lines(self) -> Iterator[str]:
        """Yields one line for each reason."""
        rows: dict[str, list[str]] = {}
        for one in self.skipped:
            rows.setdefault(one.reason, []).append(one.row)
        for reason, names in rows.items():
            different = list(dict.fromkeys(names))
            shown = different[0] if len(different) == 1 else f"{different[0]} and {len(different) - 1} other rows"
            yield f"skipped: {shown}: {reason}"

    def case_lines(self) -> Iterator[str]:
        """Yields a line for each case that passed."""
        for one in self.outcomes:
            if not one.happened:
                yield f"ok: {described(one.case)}: {one.case.expected}"

    def summary(self) -> str:
        failed = len(self.failures)
        what = f"{failed} of {len(self.outcomes)} cases failed" if failed else f"all {len(self.outcomes)} cases passed"
        return f"{what}, {len(self.skipped)} skipped" if self.skipped else what

    def document(self) -> dict[str, Any]:
        """Returns everything for programs."""
        return {
            "ok": not self.failures,
            "cases": [self._case(one) for one in self.outcomes],
            "skipped": [{"way": one.row, "from": one.column.value, "reason": one.reason} for one in self.skipped],
        }

    def _case(self, one: CaseOutcome) -> dict[str, Any]:
        case = one.case
        trace = self.traces.get(case.trace) if case.trace is not None else None
        return {
            "way": case.row,
            "from": case.column.value,
            "source": str(case.source),
            "to": target(case),
            "expected": str(case.expected),
            "ok": not one.happened,
            **({"happened": one.happened} if one.happened else {}),
            **({"trace": list(trace)} if one.happened and trace else {}),
        }


def outcomes(cases: Sequence[Case], results: Sequence[RequestResult]) -> tuple[CaseOutcome, ...]:
    """Returns the result of each case."""
    return tuple(
        CaseOutcome(case, difference(case.expected, result)) for case, result in zip(cases, results, strict=True)
    )


def traces_wanted(failures: Iterable[CaseOutcome], most: int) -> list[Trace]:
    """Returns each failed connection once, at most `most`."""
    return list(dict.fromkeys(one.case.trace for one in failures if one.case.trace is not None))[:most]


def described(case: Case) -> str:
    return f"{case.row}: from {case.source} to {target(case)}"


def target(case: Case) -> str:
    """Returns what is connected to, or looked up."""
    request = case.request
    if request.kind == "resolve":
        return request.host
    kind = "udp" if request.kind == "query" else request.kind
    return f"{endpoint_text(request.host, request.port)}/{kind}"
