"""What is broken in a lab costs what the report says, and is put right."""

import json
import signal
from typing import Any

import pytest

from nodeagent.lab.live.caller import ask, conversation
from nodeagent.lab.live.requests import Connect, Connected, FaultProgress, FaultReport, GetStatus, InjectFault, Status

SERVICE = "default/echo"
RATE = 150.0


def broken(lab: Any, kind: str, *, node: str = "node-1", seconds: float = 0.0, amount: float = 0.0) -> FaultReport:
    request = InjectFault(kind, SERVICE, node, seconds, RATE, amount)
    with conversation(lab.directory(), request, timeout=60) as answers:
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
    ("kind", "seconds", "restarts"),
    [
        pytest.param("restart", 0.0, 1, id="agent restarted"),
        pytest.param("kill", 0.5, 1, id="agent killed"),
        pytest.param("freeze", 1.0, 0, id="agent frozen"),
        pytest.param("api", 1.0, 0, id="API server down"),
        pytest.param("flush", 0.0, 0, id="owned tables flushed"),
    ],
)
def test_no_connection_fails_and_none_that_is_open_breaks(
    shared: Any, eventually: Any, kind: str, seconds: float, restarts: int
) -> None:
    def node() -> Any:
        return ask(shared.directory(), GetStatus(), Status).nodes[0]

    report = broken(shared, kind, seconds=seconds)

    assert report.attempts > 20
    assert (report.failed, report.failures, report.by_target) == (0, {}, {})
    assert report.recovery == 0.0
    assert report.kept == report.held > 0
    eventually(lambda: node().healthy)
    assert node().restarts >= restarts


def test_no_connection_fails_while_every_pod_is_replaced(shared: Any) -> None:
    before = {pod.name for pod in ask(shared.directory(), GetStatus(), Status).pods}
    report = broken(shared, "rollover")
    after = {pod.name for pod in ask(shared.directory(), GetStatus(), Status).pods}

    assert (report.failed, report.recovery) == (0, 0.0)
    assert report.attempts > 100
    assert report.kept == 0, "the pods they were open to have gone"
    assert len(after) == len(before)
    assert not before & after


def test_a_cut_node_costs_connections_until_the_link_is_back(shared: Any) -> None:
    report = broken(shared, "cut", seconds=2.1)

    assert report.failed > 0
    assert sum(report.failures.values()) == sum(report.by_target.values()) == report.failed
    assert report.recovery is not None
    assert 0.0 < report.recovery < 4.0
    assert report.after is not None
    assert report.after < 1.5
    assert connect(shared, "client", "192.168.0.11", 80).failures == {"refused": 1}, "reached, and nobody there"


def test_a_full_connection_table_costs_connections_until_there_is_room(shared: Any) -> None:
    report = broken(shared, "conntrack", seconds=2.1)

    assert report.failed > 0
    assert report.after is not None
    assert report.after < 1.5
    assert report.kept == report.held, "tracked before"
    assert connect(shared, "caller-1", cluster_ip(shared), 80, count=20).failures == {}


def test_lost_packets_are_sent_again_and_the_report_is_a_table(shared: Any) -> None:
    outcome = shared.run("fault", "drop", "node-2", "--amount", "5", "--for", "1", "--rate", "50")

    assert (outcome.status, outcome.errors) == (0, "5% of the packets to and from node-2 are lost …\n")
    heading, row, *_ = outcome.output.splitlines()
    assert heading.split()[:3] == ["FAULT", "CONNECTIONS", "FAILED"]
    assert row.startswith("5% of the packets to and from node-2 are lost")
    held, of, opened = row.split()[-3:]
    assert (held, of) == (opened, "of")
    assert connect(shared, "client", "192.168.0.12", 80).failures == {"refused": 1}


def test_a_slow_link_is_slow_both_ways_and_then_no_longer(shared: Any) -> None:
    with conversation(shared.directory(), InjectFault("delay", SERVICE, "node-1", 30.0, 10.0, 40.0)) as answers:
        next(answers)
        slow = connect(shared, "node-2", "192.168.0.11", 81, timeout=5).seconds
        deadline = 100
        while slow < 0.08 and deadline:  # it is announced just before it is there
            slow = connect(shared, "node-2", "192.168.0.11", 81, timeout=5).seconds
            deadline -= 1
        assert 0.08 <= slow < 1.0
        faults = ask(shared.directory(), GetStatus(), Status).faults
        assert faults == ("40 ms more to and from node-1",)
    quick = min(connect(shared, "node-2", "192.168.0.11", 81).seconds for _ in range(20))

    assert quick < 0.04
    assert ask(shared.directory(), GetStatus(), Status).faults == ()


def test_a_fault_whose_asker_goes_away_is_put_right_at_once(shared: Any, eventually: Any) -> None:
    with shared.start("fault", "cut", "node-2", "--for", "1000") as command:
        assert command.stderr is not None
        assert command.stderr.readline() == "the link of node-2 is cut …\n"
        eventually(lambda: connect(shared, "node-1", "192.168.0.12", 81, timeout=0.2).failures != {"refused": 1})
        command.send_signal(signal.SIGINT)
        assert command.wait(20) == 130
    eventually(lambda: connect(shared, "node-1", "192.168.0.12", 81, timeout=1.0).failures == {"refused": 1})
    eventually(lambda: ask(shared.directory(), GetStatus(), Status).faults == ())


def test_flushed_plain_tables_are_reported_as_they_are(bench: Any) -> None:
    bench.do("up", "--nodes", "1", "--pods", "2", "--agent-option=--table-ownership=plain")
    report = broken(bench, "flush")
    tables = json.loads(bench.do("exec", "node-1", "--", "nft", "-j", "list", "tables"))["nftables"]

    assert report.note == "the agent's tables were flushed"
    assert any(entry.get("table", {}).get("name") == "nodeagent" for entry in tables), "repaired"
    assert report.recovery is not None
    assert report.recovery < 1.5
    assert (report.recovery > 0) is (report.failed > 0), "no failure is hidden, none invented"
    assert connect(bench, "caller-1", cluster_ip(bench), 80, count=20).failures == {}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        pytest.param(
            ["fault", "cut", "node-9"], 2, "there is no node 'node-9'; there are node-1, node-2", id="no node"
        ),
        pytest.param(["fault", "drop", "--amount", "101"], 2, "--amount 101: not for drop", id="too many drops"),
        pytest.param(["fault", "kill", "--for", "-1"], 2, "--rate and --for are above 0", id="negative time"),
        pytest.param(["fault", "kill", "--service", "default/none"], 1, "GET /api/v1/namespaces/", id="no service"),
        pytest.param(
            ["load", "--service", "default/kubernetes", "--udp"], 1, "service kubernetes has no UDP", id="port"
        ),
        pytest.param(["load", "--rate", "0"], 2, "--rate 0 is not above 0", id="no rate"),
    ],
)
def test_what_cannot_be_broken_is_one_line(shared: Any, arguments: list[str], status: int, words: str) -> None:
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
        output, _ = command.communicate(timeout=20)

    assert command.returncode == 0
    assert output.count("FROM") == 1
