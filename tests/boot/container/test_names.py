"""Names answered by the service: its process outlives the agent and has no rights. In order: each test goes on where the
last ended."""

import socket
from collections.abc import Iterator

import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, cluster_ips
from tests.harness.dns.lookups import Asker, ask, lookups, until_all_say
from tests.harness.objects import service_port
from tests.harness.uninterrupted import SHOP

from .conftest import AGENT, Node

DNS = cluster_ips(10)
LISTEN = ("169.254.20.10", "fd00:20::10", *DNS)
NAME = "shop.default.svc.cluster.local."
NEW = cluster_ips(3)
UDP = socket.SOCK_DGRAM
PORTS = (service_port(53, Protocol.UDP, name="dns"), service_port(53, name="dns-tcp"))
MODULE = "nodeagent.names.server"


@pytest.fixture(scope="module")
def named(node: Node) -> Node:
    """The service with names in its configuration, started."""
    node.cluster.expose("kube-dns", *DNS, ports=PORTS)
    node.install(1)
    node.configure(listen=LISTEN)
    node.machine.systemctl("start", AGENT)
    return node


@pytest.fixture
def askers(named: Node) -> Iterator[list[Asker]]:
    """From a pod and from the node, by UDP and TCP, all the time."""
    with lookups(named.cluster, ["caller", NODE], LISTEN, NAME) as asking:
        until_all_say(asking, SHOP[0])
        yield asking


def answer(node: Node, name: str, server: str = LISTEN[0]) -> str:
    """What a pod receives by UDP, or why it receives nothing."""
    try:
        return inside(node.cluster.world.namespace("caller"), lambda: ask(server, name, UDP))
    except OSError as error:
        return repr(error)


def process(node: Node) -> str:
    """The pid that the machine knows the DNS process by; empty without such a process."""
    return node.machine.run("pgrep", "--full", MODULE, check=False).stdout.strip()


def nothing_was_lost(askers: list[Asker]) -> None:
    until_all_say(askers, SHOP[0])
    assert [loss for asker in askers for loss in asker.lost] == []
    assert {said for asker in askers for said in asker.answers} == {SHOP[0]}


def test_names_are_answered_at_every_address(named: Node) -> None:
    for server in LISTEN:
        named.machine.wait_until(lambda server=server: answer(named, NAME, server) == SHOP[0], f"an answer of {server}")  # type: ignore[misc]


def test_the_process_has_no_rights(named: Node) -> None:
    pid = process(named)
    text = named.machine.run("cat", f"/proc/{pid}/status").stdout
    status = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    assert "0" not in status["Uid"].split()
    for kind in ("CapEff", "CapPrm", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    limits = named.machine.run("grep", "Max open files", f"/proc/{pid}/limits").stdout
    assert int(limits.split()[3]) >= 8192  # LimitNOFILE=, as far as this machine lets it


def test_a_restart_of_the_service_is_not_noticed(named: Node, askers: list[Asker]) -> None:
    before = process(named)
    for _ in range(2):
        named.machine.systemctl("restart", AGENT)
        until_all_say(askers, SHOP[0])
    named.machine.wait_for_line(AGENT, f"Found left-over process {before} ")
    assert process(named) == before
    nothing_was_lost(askers)


def test_an_agent_that_is_killed_or_frozen_leaves_names_alone(named: Node, askers: list[Asker]) -> None:
    before = process(named)
    for signal_name in ("KILL", "ABRT"):
        lines_before = len(named.machine.journal(AGENT))
        named.machine.systemctl("kill", "--kill-whom=main", f"--signal={signal_name}", AGENT)
        named.machine.wait_for_line(AGENT, "agent: ready: ", after=lines_before, seconds=60)
    assert process(named) == before
    nothing_was_lost(askers)


def test_names_go_on_while_the_service_is_stopped_and_follow_when_it_is_started(
    named: Node, askers: list[Asker]
) -> None:
    before = process(named)
    named.machine.systemctl("stop", AGENT)
    assert named.machine.show(AGENT, "ActiveState") == "inactive"
    new = named.cluster.expose("new", *NEW, pods=["web-1"])
    until_all_say(askers, SHOP[0])
    assert answer(named, NAME.replace("shop", "new")) == "NXDOMAIN"
    named.machine.systemctl("start", AGENT)
    named.machine.wait_until(lambda: answer(named, NAME.replace("shop", "new")) == NEW[0], "the new Service's name")
    named.cluster.withdraw(new)
    assert process(named) == before
    nothing_was_lost(askers)


def test_a_killed_process_is_replaced_by_one_without_rights(named: Node) -> None:
    before = process(named)
    agent = named.machine.show(AGENT, "MainPID")
    named.machine.run("kill", "-KILL", before)
    named.machine.wait_until(lambda: process(named) not in ("", before), "another process", seconds=60)
    named.machine.wait_until(lambda: answer(named, NAME) == SHOP[0], "an answer", seconds=60)
    assert named.machine.show(AGENT, "MainPID") == agent
    test_the_process_has_no_rights(named)


def test_killing_the_whole_service_brings_both_back(named: Node) -> None:
    before = process(named)
    named.machine.systemctl("kill", "--signal=KILL", AGENT)
    named.machine.wait_until(lambda: process(named) not in ("", before), "another process", seconds=60)
    named.machine.wait_until(lambda: answer(named, NAME) == SHOP[0], "an answer", seconds=60)


def test_an_upgrade_replaces_the_process_and_nobody_notices(named: Node, askers: list[Asker]) -> None:
    before = process(named)
    named.install(2)
    named.machine.wait_until(lambda: process(named) not in ("", before), "one process, another one", seconds=60)
    nothing_was_lost(askers)


def test_switching_names_off_ends_the_process(named: Node) -> None:
    named.configure()
    named.machine.systemctl("reload", AGENT)
    named.machine.wait_until(lambda: not process(named), "the end of the process", seconds=60)
    named.configure(listen=LISTEN)
    named.machine.systemctl("restart", AGENT)
    named.machine.wait_until(lambda: answer(named, NAME) == SHOP[0], "an answer", seconds=60)


def test_cleanup_after_a_stop_ends_it(named: Node) -> None:
    named.machine.systemctl("stop", AGENT)
    assert answer(named, NAME) == SHOP[0]
    named.machine.run("nodeagent", "cleanup")
    named.machine.wait_until(lambda: not process(named), "the end of the process", seconds=60)
    assert named.machine.run("ls", "/run/nodeagent").stdout == ""


def test_removing_the_package_leaves_no_process(named: Node) -> None:
    named.machine.systemctl("start", AGENT)
    named.machine.wait_until(lambda: answer(named, NAME) == SHOP[0], "an answer", seconds=60)
    named.machine.run("dpkg", "--remove", "nodeagent")
    named.machine.wait_until(lambda: not process(named), "the end of the process", seconds=60)
    assert not (named.machine.root / "run/nodeagent").exists()


def test_shutting_the_machine_down_does_not_wait_for_it(named: Node) -> None:
    named.install(2)
    named.machine.systemctl("start", AGENT)
    named.machine.wait_until(lambda: answer(named, NAME) == SHOP[0], "an answer", seconds=60)
    named.machine.power_off(seconds=60)  # systemd would wait for 90
