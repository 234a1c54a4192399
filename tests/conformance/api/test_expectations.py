"""What specs.yaml says holds together; with KUBERNETES=DIR, also with what a release's e2e.test has."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.api.__main__ import DOCUMENT
from tests.conformance.api.e2e import Outcome, all_specs
from tests.conformance.api.expectations import Expectations, Reason, read_expectations
from tests.conformance.api.table import render

_PLACE: Final = Path(os.environ.get("KUBERNETES") or "/nowhere")
E2E: Final = next((found for found in (_PLACE / "e2e.test", _PLACE / "bin" / "e2e.test") if found.exists()), None)
HAD: Final = "[sig-node] Lease lease API should be available [Conformance]"
WEBHOOK: Final = "[sig-api-machinery] AdmissionWebhook should deny a | b"
SOME: Final = Expectations((HAD,), (Reason("no webhooks", (r"\[sig-api-machinery\] AdmissionWebhook",)),))


def test_nothing_is_expected_twice() -> None:
    expected = read_expectations()
    assert len(set(expected.passing)) == len(expected.passing)
    whys = [reason.why for reason in expected.reasons]
    assert len(set(whys)) == len(whys)


def test_passing_tests_need_no_reason_and_unknown_tests_are_named() -> None:
    strange = "[sig-network] Something new"
    assert SOME.reason(HAD) is None
    assert SOME.unknown([HAD, WEBHOOK, strange, "[sig-storage] Other"]) == [strange]
    assert SOME.missing([WEBHOOK]) == [HAD]


def test_the_table_says_what_failed_and_why_the_others_were_not_run() -> None:
    outcomes = [Outcome(HAD, "failed", 1.25, "a <b> |\n c")]
    text = render(SOME, outcomes, [HAD, WEBHOOK], "1.36.2", ("namespace-controller",))
    assert "**0 of 1 specs passed**" in text
    assert f"| {HAD} | **failed**: a &lt;b> \\| c | 1.2 |" in text
    assert "| no webhooks | 1 | api-machinery: AdmissionWebhook |" in text


def test_the_document_has_what_the_data_says() -> None:
    """A row that was moved by hand is seen."""
    expected = read_expectations()
    run, _, left_out = DOCUMENT.read_text().partition("## Not for this server")
    outcomes = [Outcome(spec, "passed", 0.0, "") for spec in expected.passing]
    written, _, reasons = render(expected, outcomes, (), "1.36.2", ()).partition("## Not for this server")
    assert cells(run, 2) == cells(written, 2)
    assert cells(left_out, 1) == cells(reasons, 1)
    assert f"**{len(expected.passing)} of {len(expected.passing)} specs passed**" in run


def cells(text: str, count: int) -> list[list[str]]:
    """The first so many cells of each row: those that do not differ from run to run."""
    return [line.split(" | ")[:count] for line in text.splitlines() if line.startswith("|")]


@pytest.mark.skipif(E2E is None, reason="no e2e.test: KUBERNETES=DIR names the binaries of a release")
def test_every_spec_of_a_release_passes_or_has_a_reason(tmp_path: Path) -> None:
    assert E2E is not None
    expected, specs = read_expectations(), all_specs(E2E, tmp_path)
    assert len(specs) > len(expected.passing)
    assert expected.unknown(specs) == []
    assert expected.missing(specs) == []
    unused = [reason.why for reason in expected.reasons if not any(expected.reason(spec) is reason for spec in specs)]
    assert unused == []
