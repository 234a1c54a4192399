"""What is made of the reports of `e2e.test`, without a cluster."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.conformance import report, results, specs
from tests.conformance.run import RUN, Part
from tests.conformance.support import MATRIX, READ, TESTED, UNKNOWN
from tests.harness.kubernetes.release import ROOT

PASSES = "[sig-network] Services should pass"
PASSES_TOO = "[sig-network] Services should pass too [Conformance]"
FAILS = "[sig-network] Services should fail"
SKIPS = "[sig-network] Services should skip"
REPORT = f"""<testsuites><testsuite>
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="0"/>
<testcase name="[It] {PASSES} [sig-network]" status="passed" time="2.5"/>
<testcase name="[It] {PASSES_TOO} [sig-network, Conformance]" status="passed" time="40"/>
<testcase name="[It] {FAILS} [sig-network]" status="failed" time="7"><failure message="&#10; no | answer&#10;more" type="failed"/></testcase>
<testcase name="[It] {SKIPS} [sig-network]" status="skipped" time="0"><skipped message="skipped - Requires a cloud"/></testcase>
<testcase name="[It] [sig-network] filtered out" status="skipped" time="0"><skipped message="skipped"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of results beside both proxies."""
    for proxy, text in (("nodeagent", REPORT), ("kube-proxy", REPORT.replace('time="40"', 'time="9"'))):
        place = tmp_path / f"bridge-{proxy}-others"
        place.mkdir()
        (place / "together-0.xml").write_text(text)
        part = Part("bridge", proxy, "others", 90.0, "2026-01-02", 3, 2)
        (place / RUN).write_text(json.dumps(asdict(part)))
    return tmp_path


def test_each_spec_that_was_not_filtered_out_has_a_verdict(directory: Path) -> None:
    found = results.read([directory / "bridge-nodeagent-others" / "together-0.xml"])

    assert {spec: (one.verdict, one.seconds, one.why) for spec, one in found.items()} == {
        PASSES: ("passed", 2.5, ""),
        PASSES_TOO: ("passed", 40, ""),
        FAILS: ("failed", 7, "no | answer"),
        SKIPS: ("skipped", 0, "Requires a cloud"),
    }


def test_the_table_counts_verdicts(directory: Path) -> None:
    _, first, second = report.table(directory).splitlines()
    assert first.split() == ["bridge", "kube-proxy", "others", "2", "1", "1", "1.5"]
    assert second.split() == ["bridge", "nodeagent", "others", "2", "1", "1", "1.5"]


def test_the_document_says_what_failed_and_what_differs(directory: Path) -> None:
    text = report.write(directory, [PASSES, FAILS], "Kubernetes v1")

    assert "| Services should fail | kube-proxy (bridge), nodeagent (bridge) | - | no \\| answer |" in text
    assert "| Services should pass too \\[Conformance] | 40 s | 9 s |" in text
    assert "| Services should skip | Requires a cloud |" in text
    assert "Of 2 specs 0 are left out" in text


def test_shares_of_a_part_are_one_line(directory: Path) -> None:
    place = directory / "bridge-nodeagent-others-2-of-2"
    place.mkdir()
    (place / "together-0.xml").write_text(
        REPORT.replace(PASSES, "[sig-network] Services should pass, in the other share")
    )
    (place / RUN).write_text((directory / "bridge-nodeagent-others" / RUN).read_text())

    assert report.table(directory).splitlines()[2].split() == ["bridge", "nodeagent", "others", "4", "1", "1", "3.0"]


@pytest.mark.parametrize("kind", [specs.CONFORMANCE, specs.OTHERS])
def test_a_conformance_spec_that_fails_fails_the_run(directory: Path, kind: str) -> None:
    place = directory / "bridge-nodeagent-others" / RUN
    place.write_text(json.dumps({**json.loads(place.read_text()), "kind": kind}))

    assert report.fails(directory) == (kind == specs.CONFORMANCE)


@pytest.mark.parametrize(
    ("spec", "runs"),
    [
        (PASSES, True),
        ("[sig-network] LoadBalancers [Feature:LoadBalancer] should work [Slow]", False),
        ("[sig-network] Netpol API should support creating NetworkPolicy API operations", True),
        ("[sig-network] Networking Granular Checks: Services should function for node-Service: sctp [Feature:SCTPConnectivity]", False),
        ("[sig-network] Services should serve endpoints on same port and different protocols [Conformance]", True),
    ],
)  # fmt: skip
def test_specs_are_left_out_for_a_reason(spec: str, runs: bool) -> None:
    assert (specs.reason_for_leaving_out(spec) is None) == runs


def test_the_focus_finds_a_spec_and_none_whose_name_goes_on() -> None:
    found = re.compile(specs.focus([PASSES]))
    assert found.search(f"Kubernetes e2e suite {PASSES}")
    assert not found.search(PASSES_TOO)


def test_a_plugin_counts_as_tested_where_specs_ran_with_it(directory: Path) -> None:
    text = report.write(directory, [], "Kubernetes v1")

    assert "| `bridge` | tested |" in text
    assert "| `ptp` | unknown |" in text


def test_every_state_of_support_has_evidence() -> None:
    for entries in MATRIX.values():
        for one in entries:
            assert one.state in {TESTED, READ, UNKNOWN}
            assert one.evidence


@pytest.mark.parametrize(
    ("environment", "says"),
    [({}, "KUBERNETES is not set"), ({"KUBERNETES": "/nowhere"}, "no etcd in /nowhere|no kube-apiserver in /nowhere")],
)
def test_a_missing_program_is_named_in_one_line(environment: dict[str, str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert re.search(says, line)
