"""Runs the specs, prints and writes the table. Ends with 1 where one does not pass, or nothing is known of a spec."""

import os
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.conformance.api.control_plane import CONTROLLERS, running
from tests.conformance.api.e2e import all_specs, run
from tests.conformance.api.expectations import read_expectations
from tests.conformance.api.table import render

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "conformance-api.md"
_SECONDS: Final = 900


def main() -> int:
    """The exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended
    place = os.environ.get("KUBERNETES")
    if not place:
        print(
            "KUBERNETES=DIR has to name the binaries of a release: e2e.test, kube-controller-manager", file=sys.stderr
        )
        return 2
    programs = Path(place) / "bin" if (Path(place) / "bin").is_dir() else Path(place)
    expectations = read_expectations()
    with tempfile.TemporaryDirectory(prefix="conformance-api-") as scratch:
        specs = all_specs(programs / "e2e.test", Path(scratch))
        known_wrong = expectations.unknown(specs) + expectations.missing(specs)
        for name in known_wrong:
            print(f"specs.yaml does not fit this release: {name}", file=sys.stderr)
        with ExitStack() as stack:
            stack.callback(_keep_logs, Path(scratch))
            plane = stack.enter_context(running(programs, Path(scratch)))
            program = programs / "e2e.test"
            outcomes = run(
                plane.host.prefix, program, plane.kubeconfig, expectations.passing, Path(scratch), seconds=_SECONDS
            )
            _, version = plane.call("GET", "/version")
            complaints = plane.complaints()
    release = str(version["gitVersion"]).partition("+")[0].removeprefix("v")
    text = render(expectations, outcomes, specs, release, CONTROLLERS)
    DOCUMENT.write_text(text)
    for outcome in outcomes:
        print(f"{outcome.state:10} {outcome.seconds:6.1f} s  {outcome.spec}")
        if not outcome.passed:
            print(f"           {outcome.message}")
    for line in complaints:
        print(f"kube-controller-manager: {line}")
    failed = [outcome for outcome in outcomes if not outcome.passed]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} passed; {DOCUMENT}")
    return 1 if failed or known_wrong else 0


def _keep_logs(scratch: Path) -> None:
    place = os.environ.get("KEEP")
    for log in scratch.glob("*.log") if place else ():
        shutil.copy(log, Path(place or "."))


if __name__ == "__main__":
    sys.exit(main())
