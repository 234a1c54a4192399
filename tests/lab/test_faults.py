"""What is broken in a lab costs what the report says, and is put right."""

import csv
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from nodeagent.lab.caller import ask, conversation
from nodeagent.lab.supervisor_messages import (
    Connect,
    Connected,
    FaultProgress,
    FaultReport,
    FaultVerdict,
    GetStatus,
    InjectFault,
    Locate,
    MemberPlace,
    Status,
)
from tests.harness.nft import Nft
from tests.harness.stopwatch import allowed, once_within

pytestmark = pytest.mark.slow

SERVICE = "default/echo"
RATE = 150.0
DEADLINE = 240.0
"""Seconds, for a machine that is busy."""
SOON = 3.0
"""Seconds for a recovery that takes parts of one on a quiet machine."""
EVERYBODY = {(role, family) for role in ("pod", "node", "outside") for family in ("IPv4", "IPv6")}


def broken(lab: Any, kind: str, *, seconds: float = 0.0, protocol: str = "TCP") -> FaultReport:
    request = InjectFault(kind, SERVICE, "", seconds, RATE, 0.0, protocol)
    with conversation(lab.directory(), request, timeout=DEADLINE) as answers:
        *before, report = answers
    assert [type(one) for one in before] == [FaultProgress]
    assert isinstance(report, FaultReport)
    return report


def connect(lab: Any, client: str, address: str, port: int, count: int = 1, timeout: float = 3.0) -> Connected:
    return ask(lab.directory(), Connect(client, address, port, count, timeout=timeout), Connected)


def cluster_ip(lab: Any) -> str:
    status = ask(lab.directory(), GetStatus(), Status)
    echo = next(service for service in status.services if service.name == SERVICE)
    return echo.addresses[0].rpartition(":")[0]


@pytest.mark.parametrize(
    ("kind", "seconds", "restarts", "seen", "protocol"),
    [
        pytest.param("restart", 0.0, 1, "was ready after", "TCP", id="agent restarted"),
        pytest.param("kill", 0.5, 1, "was dead for", "UDP", id="agent killed, UDP"),
        pytest.param("dns", 0.5, 0, "took its place, ", "TCP", id="DNS process killed"),
        pytest.param("freeze", 1.0, 0, "was in state T", "TCP", id="agent frozen"),
        pytest.param("api", 1.0, 0, "did not answer", "TCP", id="API server down"),
        pytest.param("flush", 0.0, 0, "owned and were not flushed", "TCP", id="owned tables flushed"),
    ],
)
def test_no_connection_fails_and_none_that_is_open_breaks(
    shared: Any, eventually: Any, kind: str, seconds: float, restarts: int, seen: str, protocol: str
) -> None:
    def node() -> Any:
        return ask(shared.directory(), GetStatus(), Status).nodes[0]

    report = broken(shared, kind, seconds=seconds, protocol=protocol)

    assert report.verdict is FaultVerdict.NONE_FAILED, report
    assert (report.failed, report.outage, report.recovery) == (0, 0.0, 0.0)
    assert report.attempts > 20
    assert {(cost.way.role, cost.way.family) for cost in report.ways if cost.attempts} == EVERYBODY
    assert report.kept == report.held > 0
    assert seen in report.seen
    assert kind != "dns" or " lookups, 0 failed" in report.seen
    eventually(lambda: node().healthy)
    assert node().restarts >= restarts


def test_no_connection_fails_while_every_pod_is_replaced(shared: Any) -> None:
    before = {pod.name for pod in ask(shared.directory(), GetStatus(), Status).pods}
    report = broken(shared, "rollover")
    after = {pod.name for pod in ask(shared.directory(), GetStatus(), Status).pods}

    assert (report.failed, report.verdict) == (0, FaultVerdict.NONE_FAILED), report
    assert report.attempts > 100
    assert report.kept == 0, "the pods they were open to have gone"
    assert len(after) == len(before)
    assert not before & after


def test_a_cut_node_costs_connections_until_the_link_is_back(shared: Any) -> None:
    report = broken(shared, "cut", seconds=2.1)

    assert (report.verdict, report.seen) == (FaultVerdict.RECOVERED, "node-1 answered no ping")
    assert report.failed == report.failures.total() > 0
    assert 0.0 < report.outage < allowed(8.0)
    assert report.recovery is not None
    assert report.recovery < allowed(SOON)
    assert connect(shared, "client", "192.168.0.11", 80).failures == {"refused": 1}, "reached, and nobody there"


def test_a_full_connection_table_costs_connections_until_there_is_room(shared: Any) -> None:
    report = broken(shared, "conntrack", seconds=2.1)

    assert report.verdict is FaultVerdict.RECOVERED
    assert report.failed > 0
    assert report.seen.endswith("packets of new connections found no room")
    assert report.recovery is not None
    assert report.recovery < allowed(SOON)
    assert report.kept == report.held, "tracked before"
    assert connect(shared, "caller-1", cluster_ip(shared), 80, count=20).failures == {}


def test_lost_packets_are_sent_again_and_the_report_is_a_table(shared: Any) -> None:
    outcome = shared.run("fault", "drop", "node-2", "--amount", "5", "--for", "1", "--rate", "50")

    assert (outcome.status, outcome.errors) == (0, "5% of packets to and from node-2 lost …\n")
    heading, row, *_ = outcome.output.splitlines()
    assert heading.startswith("FAULT  WHAT HAPPENED")
    assert row.startswith("drop   5% of packets to and from node-2 lost")
    assert outcome.output.endswith("all is as it must be\n")
    assert " packets dropped" in outcome.output
    assert connect(shared, "client", "192.168.0.12", 80).failures == {"refused": 1}


def test_all_packets_may_be_lost_and_the_picture_shows_which_connections(shared: Any, tmp_path: Path) -> None:
    outcome = shared.run("fault", "drop", "--amount", "100", "--for", "0.3", "--report", str(tmp_path / "run"))

    assert outcome.status == 0, outcome.errors
    assert "100% of packets to and from node-1 lost" in outcome.output
    assert outcome.output.endswith(f"report: {tmp_path}/run/index.html\n")
    with (tmp_path / "run/drop.csv").open() as file:
        connections = list(csv.DictReader(file))
    moments = [float(one["seconds_after_fault"]) for one in connections]
    assert moments == sorted(moments)
    assert moments[0] < 0.0 < 0.3 < moments[-1], "from before the fault until all was well"
    assert {one["client"] for one in connections} >= {"client", "node-1", "caller-2"}
    slow = [
        one for one, at in zip(connections, moments, strict=True) if 0.0 <= at < 0.3 and float(one["seconds"]) > 0.5
    ]
    assert slow, "its first packet was lost, and sent again a second later"
    ET.parse(tmp_path / "run/drop.svg")
    assert "drop.svg" in (tmp_path / "run/index.html").read_text()


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_broken(shared: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = shared.run("fault", "kill", "--report", str(tmp_path / "file" / "run"))

    assert (outcome.status, outcome.output) == (1, "")
    assert outcome.errors == f"nodeagent: {tmp_path}/file/run: Not a directory\n"


def test_a_slow_link_is_slow_both_ways_and_then_no_longer(shared: Any) -> None:
    with conversation(shared.directory(), InjectFault("delay", SERVICE, "node-1", 30.0, RATE, 40.0)) as answers:
        next(answers)
        slow = connect(shared, "node-2", "192.168.0.11", 81, timeout=5).seconds
        left = 100
        while not 0.08 <= slow < 1.0 and left:  # it is announced just before it is there, and costs a packet or two
            slow = connect(shared, "node-2", "192.168.0.11", 81, timeout=5).seconds
            left -= 1
        assert 0.08 <= slow < 1.0
        faults = ask(shared.directory(), GetStatus(), Status).faults
        assert faults == ("40 ms more to and from node-1",)
    once_within(0.04, lambda: connect(shared, "node-2", "192.168.0.11", 81).seconds, "a link that is not slow")
    assert ask(shared.directory(), GetStatus(), Status).faults == ()


def test_a_fault_whose_asker_goes_away_is_put_right_at_once(shared: Any, eventually: Any) -> None:
    with shared.start("fault", "cut", "node-2", "--for", "1000") as command:
        assert command.stderr is not None
        assert command.stderr.readline() == "link of node-2 cut …\n"
        eventually(lambda: connect(shared, "node-1", "192.168.0.12", 81, timeout=0.2).failures != {"refused": 1})
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130
    eventually(lambda: connect(shared, "node-1", "192.168.0.12", 81, timeout=1.0).failures == {"refused": 1})
    eventually(lambda: ask(shared.directory(), GetStatus(), Status).faults == ())


def test_pods_are_as_many_as_before_when_their_replacement_is_interrupted(shared: Any, eventually: Any) -> None:
    def pods() -> list[str]:
        return [pod.name for pod in ask(shared.directory(), GetStatus(), Status).pods]

    before = len(pods())
    with shared.start("fault", "rollover") as command:
        assert command.stderr is not None
        command.stderr.readline()
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130
    eventually(lambda: ask(shared.directory(), GetStatus(), Status).faults == ())
    assert len(pods()) == before


def test_flushed_plain_tables_are_reported_as_they_are(bench: Any) -> None:
    bench.do("up", "--nodes", "1", "--pods", "2", "--agent-option=--table-ownership=plain")
    report = broken(bench, "flush")
    tables = Nft(ask(bench.directory(), Locate("node-1"), MemberPlace).namespace).tables()

    assert report.seen == "the agent's tables were flushed"
    assert "nodeagent" in {table["name"] for table in tables}, "repaired"
    assert report.recovery is not None
    assert report.recovery < allowed(SOON)
    assert (report.verdict is FaultVerdict.RECOVERED) is (report.failed > 0), "no failure is hidden, none invented"
    assert connect(bench, "caller-1", cluster_ip(bench), 80, count=20).failures == {}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        pytest.param(
            ["fault", "cut", "node-9"], 2, "there is no node 'node-9'; there are node-1, node-2", id="no node"
        ),
        pytest.param(["fault", "cut", "echo-1-1"], 2, "there is no node 'echo-1-1'", id="a pod"),
        pytest.param(["fault", "api", "node-1"], 2, "api is not on one node: leave out 'node-1'", id="not on a node"),
        pytest.param(
            ["fault", "leader-kill"], 1, "the lab has no etcd: `nodeagent lab up --control-planes 3`", id="no etcd"
        ),
        pytest.param(["fault", "leader-cut", "x"], 2, "leader-cut is always on the leader: leave out", id="leader"),
        pytest.param(["fault", "drop", "--amount", "101"], 2, "--amount 101: percent, from 0.1", id="too many drops"),
        pytest.param(["fault", "kill", "--amount", "5"], 2, "kill has no --amount", id="no amount"),
        pytest.param(["fault", "all", "--amount", "5"], 2, "--amount is for one fault", id="amount of all"),
        pytest.param(["fault", "all", "node-9"], 2, "there is no node 'node-9'", id="all on no node"),
        pytest.param(["fault", "restart", "--for", "5"], 2, "restart has no duration to choose", id="no time"),
        pytest.param(["fault", "kill", "--for", "-1"], 2, "--for -1 is not above 0", id="negative time"),
        pytest.param(["fault", "kill", "--for", "nan"], 2, "--for nan is not above 0", id="no number"),
        pytest.param(["fault", "kill", "--rate", "1e6"], 2, "--rate 1e+06: from 1 to 2000", id="too many"),
        pytest.param(["fault", "kill", "--service", "default/none"], 1, "GET /api/v1/namespaces/", id="no service"),
        pytest.param(
            ["load", "--service", "default/kubernetes", "--udp"], 1, "service kubernetes has no UDP", id="port"
        ),
        pytest.param(["load", "--rate", "0"], 2, "--rate 0 is not above 0", id="no rate"),
        pytest.param(["load", "--rate", "0.5"], 2, "--rate 0.5: from 1 to 2000", id="too low a rate"),
        pytest.param(["load", "--for", "-1"], 2, "--for -1 is not above 0", id="negative end"),
    ],
)
def test_a_fault_that_cannot_be_injected_is_one_line(
    shared: Any, arguments: list[str], status: int, words: str
) -> None:
    outcome = shared.run(*arguments)

    assert outcome.status == status
    assert outcome.errors.startswith(f"nodeagent: {words}")
    assert outcome.errors.count("\n") == 1


@pytest.mark.parametrize("protocol", [(), ("--udp",)], ids=["TCP", "UDP"])
def test_load_comes_from_everywhere_and_every_pod_answers(shared: Any, protocol: tuple[str, ...]) -> None:
    outcome = shared.run("load", "--for", "1", "--rate", "150", *protocol)

    assert outcome.status == 0, outcome.output
    table = outcome.output[outcome.output.index("FROM") :].splitlines()
    ways = [line.split() for line in table[1 : table.index("")]]
    assert {way[0] for way in ways} == {"caller-1", "caller-2", "node-1", "node-2", "client"}
    assert {way[1] for way in ways} == {"ClusterIP", "NodePort", "LoadBalancer"}
    assert all(int(way[3]) > 0 == int(way[4]) for way in ways)
    pods = {pod.name for pod in ask(shared.directory(), GetStatus(), Status).pods}
    assert pods <= set(outcome.output.split())


def test_load_ends_with_ctrl_c_and_says_what_it_was(shared: Any) -> None:
    with shared.start("load", "--rate", "20") as command:
        assert command.stdout is not None
        command.stdout.readline()
        command.send_signal(signal.SIGINT)
        output, _ = command.communicate(timeout=60)

    assert command.returncode == 0
    assert output.count("FROM") == 1


def test_where_connections_fail_anyway_nothing_is_broken_and_nothing_is_claimed(bench: Any) -> None:
    bench.do("up", "--nodes", "1", "--pods", "0")
    outcome = bench.run("fault", "cut")

    assert outcome.status == 1
    assert outcome.errors.startswith("nodeagent: nothing was broken, because connections failed before: caller-1 → Clu")
    assert (outcome.errors.count("\n"), outcome.output) == (1, "")


def test_of_all_faults_those_that_cannot_be_are_not_done_and_the_others_are(bench: Any) -> None:
    bench.do("up", "--nodes", "1", "--pods", "1")
    bench.do("exec", "underlay", "--", "ip", "link", "add", "near-node-1", "type", "bridge")
    with bench.start("fault", "all", "--for", "0.3", "--rate", "30") as command:
        assert command.stderr is not None
        for line in command.stderr:
            if line.startswith("5% of packets"):
                break
        command.send_signal(signal.SIGINT)
        output, _ = command.communicate(timeout=60)

    assert command.returncode == 130
    rows = {line.split()[0]: line for line in output.partition("\n\n")[0].splitlines()}
    assert list(rows)[:8] == ["FAULT", "restart", "kill", "dns", "freeze", "api", "rollover", "flush"]
    assert rows["rollover"].endswith("none failed")
    assert "delay     " in output.partition("NOT DONE")[2]
    assert "not as it must be: delay not done" in output


def test_a_fault_or_load_whose_lab_goes_away_is_no_success(bench: Any) -> None:
    bench.do("up", "--nodes", "1", "--pods", "1")
    with bench.start("fault", "freeze", "--for", "100") as fault, bench.start("load") as load:
        assert fault.stderr is not None
        assert load.stdout is not None
        fault.stderr.readline()
        load.stdout.readline()
        bench.do("down")
        for command in (fault, load):
            _, errors = command.communicate(timeout=60)
            assert command.returncode == 1
            assert "nodeagent: lab lab ended before it answered" in errors
