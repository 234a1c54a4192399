"""What the agent sees of its node while it runs. The tree is a directory."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from nodeagent.model.problem import Problem
from nodeagent.model.reports import ConnectionTable
from nodeagent.proxy.dataplane.connection_table import read_connection_table, table_problems
from nodeagent.proxy.dataplane.node_conditions import NodeConditions
from nodeagent.proxy.dataplane.node_sysctls import NodeSysctls
from nodeagent.proxy.dataplane.sysctl import ConntrackOptions, Sysctl, apply_sysctls, required_sysctls, still_missed

STATISTICS = "entries drop insert_failed\n00000010 0000000a 00000001\n00000010 00000001 00000001\n"
ROOMY = ConnectionTable(10, 100)


@pytest.mark.parametrize(
    ("now", "before", "reasons"),
    [
        pytest.param(ROOMY, None, [], id="room"),
        pytest.param(ConnectionTable(89, 100), None, [], id="nearly nearly full"),
        pytest.param(ConnectionTable(90, 100), None, ["ConnectionTableNearlyFull"], id="nearly full"),
        pytest.param(ConnectionTable(100, 100), None, ["ConnectionTableFull"], id="full"),
        pytest.param(ConnectionTable(10, 100, 7, 0), None, [], id="full long ago"),
        pytest.param(ConnectionTable(10, 100, 7, 0), ROOMY, ["ConnectionTableFull"], id="full for a moment"),
        pytest.param(ConnectionTable(10, 100, 7, 7), ROOMY, [], id="clashes only"),
        pytest.param(ConnectionTable(10, 0, 0, 0), None, [], id="no limit"),
    ],
)
def test_a_full_table_is_a_problem(now: ConnectionTable, before: ConnectionTable | None, reasons: list[str]) -> None:
    assert [one.reason for one in table_problems(now, before)] == reasons


def test_the_kernel_counts_on_each_processor(tmp_path: Path) -> None:
    for path, text in (
        ("proc/sys/net/netfilter/nf_conntrack_count", "16\n"),
        ("proc/sys/net/netfilter/nf_conntrack_max", "100\n"),
        ("proc/thread-self/net/stat/nf_conntrack", STATISTICS),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert read_connection_table(tmp_path) == ConnectionTable(entries=16, limit=100, dropped=11, clashes=2)
    (tmp_path / "proc/sys/net/netfilter/nf_conntrack_max").unlink()
    assert read_connection_table(tmp_path) is None


def test_a_problem_goes_when_it_is_gone() -> None:
    tables = iter((ConnectionTable(100, 100), ROOMY))
    said: list[list[str]] = []

    def report(problems: Iterable[Problem]) -> None:
        said.append([one.reason for one in problems])

    conditions = NodeConditions(NodeSysctls(ConntrackOptions(), manage=False), report, lambda: next(tables))
    conditions.look()
    conditions.look()
    assert said == [["ConnectionTableFull"], []]


def test_a_setting_that_is_changed_and_corrected(tmp_path: Path) -> None:
    wanted, file = Sysctl("proc/sys/a/b", 1, "it works"), tmp_path / "proc/sys/a/b"
    assert still_missed(wanted, None, root=tmp_path) is None
    file.parent.mkdir(parents=True)
    file.write_text("0\n")
    changed = still_missed(wanted, None, root=tmp_path)
    assert changed is not None
    assert changed.subject == "sysctl a.b"
    first = Problem("sysctl a.b", "SysctlNotSet", "it cannot be written")
    assert still_missed(wanted, first, root=tmp_path) == first
    file.write_text("1\n")
    assert still_missed(wanted, first, root=tmp_path) is None
    file.unlink()
    assert still_missed(wanted, first, root=tmp_path) == first


def test_a_hash_size_that_cannot_be_seen_is_no_problem(tmp_path: Path) -> None:
    """In the packaged unit's sandbox, for instance. A limit that is missing still is one."""
    results = apply_sysctls(required_sysctls((), conntrack=ConntrackOptions()), root=tmp_path)
    missed = {one.sysctl.name for one in results if one.problem is not None}
    assert not [name for name in missed if "hashsize" in name]
    assert "net.netfilter.nf_conntrack_max" in missed
