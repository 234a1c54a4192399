"""Several control planes: each may be lost, connections are not, and Service changes go on.

The short form loses the leader of etcd; `make history` breaks everything.
"""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.caller import ask, conversation
from nodeagent.lab.fault_kinds import CONTROL_KINDS, KINDS
from nodeagent.lab.net.network_namespaces import is_alive
from nodeagent.lab.supervisor_messages import FaultProgress, FaultReport, FaultVerdict, GetStatus, InjectFault, Status
from tests.harness.effort import EFFORT
from tests.harness.etcd import PROGRAM
from tests.lab.test_leftovers import descendants_of

TOOLS = Path(__file__).parents[2] / ".tools"
FAKETIME = TOOLS / "faketime" / "libfaketimeMT.so.1"
LONG = EFFORT > 1
NODES = 3 if LONG else 1
FAULTS = list(CONTROL_KINDS) if LONG else ["leader-kill"]
SHOWN = {
    "kill": r"process \d+ was dead for .* s, \d+ answered after",
    "freeze": r"process \d+ was in state T",
    "cut": r"\d+ packets dropped",
    "clock": r"it dated an object 3(599|600) s ahead",
    "space": r"alarm after \d+ MB, compacted, defragmented and disarmed",
}


def status_of(lab: Any) -> Status:
    return ask(lab.directory(), GetStatus(), Status, timeout=180.0)


def broken(lab: Any, kind: str) -> FaultReport:
    with conversation(lab.directory(), InjectFault(kind, "default/echo"), timeout=300) as answers:
        *before, report = answers
    assert [type(one) for one in before] == [FaultProgress]
    assert isinstance(report, FaultReport)
    return report


def test_connections_outlive_any_part_of_three_control_planes_and_changes_go_on(bench: Any, eventually: Any) -> None:
    with_clock = ["--libfaketime", str(FAKETIME)] if LONG else []
    size = ("--nodes", str(NODES), "--pods", "2")
    bench.do("up", "--control-planes", "3", "--etcd", str(PROGRAM), *size, *with_clock, seconds=300.0)
    supervisor = bench.supervisor()
    programs = descendants_of(supervisor)
    eventually(lambda: sum(one.elected for one in status_of(bench).control) == 1)
    status = status_of(bench)
    assert [one.name for one in status.control] == ["control-1", "control-2", "control-3"]
    assert all((one.server, one.ready, one.etcd) == ("running", True, "running") for one in status.control)
    assert sum(one.leads for one in status.control) == 1
    assert status.api == "3 of 3 running"
    assert next(one for one in status.services if one.name == "default/kubernetes").endpoints == 3
    assert bench.do("exec", "control-2", "--", "sh", "-c", "echo $KUBECONFIG").endswith("/kubeconfig-control-2\n")
    assert "serving address=192.168.0.4" in bench.do("logs", "control-3")
    assert bench.do("logs", "etcd-2")

    for kind in FAULTS:
        report = broken(bench, kind)
        assert (report.failed, report.kept) == (0, report.held), report
        # How long changes take is for the report to say; a busy machine may need longer than is promised.
        assert report.verdict in (FaultVerdict.NONE_FAILED, FaultVerdict.LATE), report
        assert report.attempts > 20
        assert report.changes > 0
        assert report.held > 0
        assert re.match(SHOWN[kind.rpartition("-")[2]], report.seen), report.seen
        eventually(lambda: all(one.ready and one.etcd == "running" for one in status_of(bench).control))
    assert [one.name for one in status_of(bench).services if "change" in one.name] == []

    for pid in (*descendants_of(supervisor), supervisor):
        programs.add(pid)
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, programs)))
    assert bench.do("down") == "removed lab lab\n"
    assert bench.namespaces(supervisor) == []
    assert list(bench.base.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        pytest.param(["--control-planes", "2"], 2, "--control-planes 2: 1, 3 or 5", id="an even number"),
        pytest.param(["--control-planes", "3", "--etcd", "none"], 3, "--etcd none: there is no such", id="no etcd"),
        pytest.param(
            ["--control-planes", "3", "--etcd", "sh", "--api", "http://192.0.2.1"],
            2,
            "--control-planes is for API servers of the lab",
            id="another API server",
        ),
    ],
)
def test_control_planes_that_cannot_be_are_one_line(bench: Any, arguments: list[str], status: int, words: str) -> None:
    outcome = bench.run("up", *arguments)

    assert (outcome.status, outcome.errors.count("\n")) == (status, 1)
    assert outcome.errors.startswith(f"nodeagent: {words}")
    assert list(bench.base.iterdir()) == []


def test_an_etcd_that_does_not_start_is_reported_and_leaves_nothing(bench: Any) -> None:
    outcome = bench.run("up", "--control-planes", "3", "--nodes", "1", "--etcd", "/bin/false")

    assert (outcome.status, outcome.errors.count("\n")) == (1, 1)
    assert "etcd-1" in outcome.errors
    assert list(bench.base.iterdir()) == []


ROW = re.compile(r"(?P<kind>[a-z-]+) +\S.*?  (?P<failed>\d+) +(?P<of>\d+) .*  (?P<verdict>\S+ \S+|recovered)")

if LONG:

    def test_everything_breaks_in_one_go(bench: Any) -> None:
        size = ("--nodes", "3", "--pods", "2", "--libfaketime", str(FAKETIME))
        bench.do("up", "--control-planes", "3", "--etcd", str(PROGRAM), *size, seconds=300.0)
        report = bench.run("fault", "all", seconds=1800.0).output
        rows = {found["kind"]: found for line in report.splitlines() if (found := ROW.fullmatch(line))}
        assert list(rows) == list(KINDS), report
        for kind, row in rows.items():
            allowed = {"none failed", "CHANGES LATE"} if kind in CONTROL_KINDS else {"none failed", "recovered"}
            assert row["verdict"] in allowed, report
            assert int(row["of"]) > 20
            assert kind not in CONTROL_KINDS or row["failed"] == "0"
