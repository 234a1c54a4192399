"""Kubernetes' e2e.test: which specs it has, and what became of those that were run."""

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GRACE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a spec; `state` is Ginkgo's word."""

    spec: str
    state: str
    seconds: float
    message: str

    @property
    def passed(self) -> bool:
        """Whether it ran and passed."""
        return self.state == "passed"


def all_specs(program: Path, scratch: Path) -> list[str]:
    """The names of all specs of a release."""
    report = scratch / "dry-run.json"
    command = [str(program), "--ginkgo.dry-run", f"--ginkgo.json-report={report}", "--provider=skeleton"]
    subprocess.run([*command, "--kubeconfig=/dev/null"], check=True, capture_output=True, cwd=scratch)
    return [name for name, _ in _specs(report)]


def run(
    prefix: Iterable[str], program: Path, kubeconfig: Path, specs: Iterable[str], scratch: Path, *, seconds: int
) -> list[Outcome]:
    """Runs specs, one after the other, and says what became of them. What is not through after `seconds` has failed."""
    report = scratch / "e2e.json"
    wanted = "|".join(_pattern(spec) for spec in specs)
    with (scratch / "e2e.log").open("wb") as log:
        subprocess.run(
            [
                *(
                    *prefix,
                    str(program),
                    f"--kubeconfig={kubeconfig}",
                    "--provider=skeleton",
                    f"--ginkgo.focus={wanted}",
                ),
                *("--ginkgo.no-color", "--ginkgo.v", f"--ginkgo.json-report={report}", f"--ginkgo.timeout={seconds}s"),
                # There are no pods to look at, and nobody makes nodes ready.
                *("--allowed-not-ready-nodes=-1", "--dump-logs-on-failure=false"),
            ],
            stdout=log,
            stderr=log,
            cwd=scratch,
            timeout=seconds + _GRACE_SECONDS,
            check=False,
        )
    if not report.exists():
        raise RuntimeError(f"e2e.test ended without a report: {scratch / 'e2e.log'}")
    chosen = set(specs)
    return [
        Outcome(name, spec["State"], spec["RunTime"] / 1e9, (spec.get("Failure") or {}).get("Message", ""))
        for name, spec in _specs(report)
        if name in chosen
    ]


def _pattern(spec: str) -> str:
    """A pattern of Go's for this name."""
    return re.sub(r"([][().*+?^${}|\\])", r"\\\1", spec)


def _specs(report: Path) -> list[tuple[str, dict[str, Any]]]:
    return [
        (" ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]]), spec)
        for suite in json.loads(report.read_text())
        for spec in suite["SpecReports"]
        if spec["LeafNodeType"] == "It"
    ]
