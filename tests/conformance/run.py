"""Runs specs in a cluster: several `e2e.test` beside each other, each with a share of the specs, and their JUnit files."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nodeagent.lab.net.network_namespaces import LabError
from tests.conformance import results, specs
from tests.conformance.proxies import Proxy
from tests.harness.kubernetes.cluster import Cluster
from tests.harness.kubernetes.network_plugin import NetworkPlugin
from tests.harness.kubernetes.release import Release

RUN = "run.json"
OPTIONS = ("--provider=skeleton", "--ginkgo.no-color", "--ginkgo.v", "--ginkgo.timeout=2h", "--ginkgo.silence-skips")


@dataclass(frozen=True, slots=True)
class Part:
    """What is written beside the JUnit files of one."""

    plugin: str
    proxy: str
    kind: str
    seconds: float
    date: str
    jobs: int
    nodes: int


def known(release: Release, directory: Path) -> list[str]:
    """The names of all sig-network specs of the release. Raises LabError."""
    directory.mkdir(parents=True, exist_ok=True)
    report = directory / f"all-{os.getpid()}.xml"
    focused = f"--ginkgo.focus={specs.focus_area()}"
    argv = [str(release.find("e2e.test")), "--ginkgo.dry-run", focused, f"--ginkgo.junit-report={report}", *OPTIONS]
    done = subprocess.run([*argv, "--kubeconfig=/dev/null"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"e2e.test cannot list its specs: {done.stdout[-500:]}")
    found = [name for name in results.names(report) if name.startswith(specs.AREA)]
    report.unlink()
    return found


def run(
    release: Release,
    archives: Sequence[Path],
    plugin: NetworkPlugin,
    proxy: Proxy,
    kind: str,
    wanted: Sequence[str],
    place: Path,
    jobs: int,
    nodes: int,
) -> None:
    """Writes the results of these specs to a directory. Raises LabError."""
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    with Cluster(release, archives, count=nodes, plugin=plugin) as cluster:
        proxy.install(cluster, release)
        began = time.monotonic()
        together = [spec for spec in wanted if "[Serial]" not in spec]
        _run_shares(cluster, release, [together[n::jobs] for n in range(jobs)], place, "together")
        _run_shares(cluster, release, [[spec for spec in wanted if "[Serial]" in spec]], place, "alone")
        took = time.monotonic() - began
    date = time.strftime("%Y-%m-%d", time.gmtime())
    (place / RUN).write_text(json.dumps(asdict(Part(plugin.name, proxy.name, kind, took, date, jobs, nodes))))


def _run_shares(cluster: Cluster, release: Release, shares: Sequence[Sequence[str]], place: Path, name: str) -> None:
    started = []
    for number, share in enumerate(share for share in shares if share):
        report = place / f"{name}-{number}.xml"
        options = (*OPTIONS, f"--kubeconfig={cluster.kubeconfig}", f"--ginkgo.junit-report={report}")
        argv = cluster.command(str(release.find("e2e.test")), f"--ginkgo.focus={specs.focus(share)}", *options)
        with report.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        started.append((process, report, share))
    for process, report, share in started:
        process.wait()
        missing = set(share) - set(results.read([report]) if report.exists() else ())
        if missing:
            raise LabError(f"e2e.test has no result of {len(missing)} specs, for instance {min(missing)}: {report}")
