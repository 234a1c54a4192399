"""Somebody else flushes or damages a plain table: it is repaired within a second.

What that second costs: without NAT chains the kernel stops translating connections that exist, too. A
ClusterIP is an address of the node, so until the repair the node answers for it itself. Open connections that send in
that time are reset (those that are silent live on), new ones are refused or, where a daemon of the host listens on the
port at every address, answered by that daemon.
"""

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count, cycle

import pytest

from nodeagent.lab.net.actor_messages import LoadReport
from nodeagent.lab.net.member import Loading
from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import Service
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.lost_packets import PATIENT, nothing_resent
from tests.harness.objects import service_port
from tests.harness.stopwatch import Stopwatch, allowed
from tests.harness.worlds.process import AgentProcess

pytestmark = pytest.mark.slow

SHOP, MEDDLED, BUSY, DNS = (cluster_ips(number) for number in range(1, 5))
PODS = ("web-0", "web-1")
CLIENTS = ("caller", "outside", NODE)
NODE_PORT = 30053
CLIENT_PORTS = count(40053)
"""One for each client, so that none has a flow of an earlier one."""
PACE = float(os.environ.get("PACE", "1"))
"""How many times slower this machine is than a real one: more than 1 where it is emulated."""
TIMEOUT = 0.5 * PACE
QUIET = 0.8 * PACE
"""Seconds of load without a wrong answer that show the repair is done; what was dropped is wrong only after TIMEOUT."""
WITHIN = 1.0 * PACE
"""Seconds, without those in which others had the processor that the agent wanted."""


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """A service, and a daemon of the node at the same port of every address."""
    for pod in PODS:
        cluster.world[pod].serve(8080)
    cluster.world[NODE].serve(80, addresses=("0.0.0.0", "::"), name="daemon")
    cluster.expose("shop", *SHOP, pods=PODS)
    return cluster


@pytest.fixture(scope="module")
def agent(served: Cluster) -> AgentProcess:
    return served.start_agent(*WITH_POD_CIDRS, "--table-ownership", "plain")


@pytest.fixture
def loads(served: Cluster, agent: AgentProcess) -> Iterator[list[Loading]]:
    """New connections all the time, from everywhere, in both families; what is dropped ends soon."""
    yield from loading(served, TIMEOUT)


@pytest.fixture
def sparse_loads(served: Cluster, agent: AgentProcess) -> Iterator[list[Loading]]:
    """The same, with a third of the connections: for tests that ask when the last one fails, not whether one does."""
    yield from loading(served, TIMEOUT, interval=0.03)


@pytest.fixture
def patient_loads(served: Cluster, agent: AgentProcess) -> Iterator[list[Loading]]:
    """The same, of which none ends for being late, and none has a first packet that is lost."""
    with nothing_resent(served.world, CLIENTS):
        yield from loading(served, PATIENT)


def loading(served: Cluster, timeout: float, interval: float = 0.01) -> Iterator[list[Loading]]:
    members = [served.world[client] for client in CLIENTS]
    running = [
        member.load(address, 80, interval=interval * PACE, timeout=timeout) for member in members for address in SHOP
    ]
    yield running
    for load in running:
        load.stop()


@pytest.fixture
def churn(served: Cluster, agent: AgentProcess) -> Iterator[None]:
    """Somebody changes a table of his own every 50 ms, and a service of ours changes every few."""
    loop = "while :; do nft 'add table inet theirs; delete table inet theirs'; sleep 0.05; done"
    writer = served.world.start(NODE, ["bash", "-c", loop])
    ended = threading.Event()

    def change() -> None:
        for pod in cycle(PODS):
            service = served.expose("busy", *BUSY, pods=[pod])
            if ended.wait(0.002):
                served.withdraw(service)
                break

    changing = threading.Thread(target=change)
    changing.start()
    yield
    ended.set()
    changing.join()
    assert writer.running, writer.last_words()
    writer.kill()


def wrong(report: LoadReport) -> dict[str, int]:
    """How many connections no endpoint answered: by failure, or by who answered instead."""
    others = {name: count for name, count in report.names.items() if name not in PODS}
    return others | {failure.value: count for failure, count in report.failures.items()}


def last_wrong(reports: Iterable[LoadReport], since: float) -> float:
    """When the last connection began that no endpoint answered."""
    moments = [answer.started for report in reports for answer in report.failed]
    return max([since, *moments, *(report.last.get("daemon", 0.0) for report in reports)])


def test_changes_to_other_tables_cost_nothing(
    served: Cluster, agent: AgentProcess, patient_loads: list[Loading]
) -> None:
    """Their generation is looked at, our table found in order; no pass, no warning."""
    printed = len(agent.lines)
    for _ in range(5):
        served.world.nft(NODE, "add table inet another")
        served.world.nft(NODE, "delete table inet another")
    agent.wait_until(lambda: all(load.report().attempts > 50 for load in patient_loads), "some load")

    assert agent.lines[printed:] == ()
    assert [wrong(load.report()) for load in patient_loads] == [{}] * len(patient_loads)


def test_many_changes_of_others_end_nothing_and_cost_no_connection(
    served: Cluster, agent: AgentProcess, patient_loads: list[Loading]
) -> None:
    """This test comes before the damage: otherwise a connection that the daemon answered would lead the next one from that port to it."""
    printed = len(agent.lines)
    loop = "for number in $(seq 100); do nft 'add table inet theirs; delete table inet theirs' & sleep 0.02; done; wait"
    served.world.run(NODE, ["bash", "-c", loop])
    agent.wait_until(lambda: all(load.report().attempts > 50 for load in patient_loads), "some load")

    assert agent.running
    assert not [line for line in agent.lines[printed:] if "sync done" not in line]
    assert [wrong(load.report()) for load in patient_loads] == [{}] * len(patient_loads)


@pytest.mark.parametrize(
    ("damage", "harmless"),
    [
        pytest.param("flush ruleset", False, id="flush ruleset"),
        pytest.param("delete table ip nodeagent", False, id="IPv4 table deleted"),
        pytest.param("delete table ip6 nodeagent", False, id="IPv6 table deleted"),
        pytest.param("flush table ip6 nodeagent", False, id="all rules deleted"),
        pytest.param("flush chain ip nodeagent prerouting", False, id="the rules of a chain deleted"),
        pytest.param("flush map ip nodeagent backends", False, id="all endpoints deleted"),
        pytest.param("delete element ip nodeagent frontends { 10.96.0.1 . tcp . 80 }", False, id="a frontend deleted"),
        pytest.param("flush set ip6 nodeagent cluster-ips", True, id="ClusterIPs deleted from the set"),
        pytest.param("insert rule ip nodeagent prerouting drop", False, id="a rule inserted"),
    ],
)
def test_a_plain_table_is_repaired_within_a_second(
    served: Cluster, agent: AgentProcess, loads: list[Loading], damage: str, harmless: bool
) -> None:
    agent.wait_until(lambda: all(load.report().attempts > 5 for load in loads), "some load")
    intact = served.world.nft(NODE, "list ruleset")
    with served.world["caller"].hold(SHOP[0], 80, count=5) as held:
        printed, watch = len(agent.lines), Stopwatch([agent.pid])
        served.world.nft(NODE, damage)
        began = time.monotonic()
        agent.wait_for_line("was changed by another process", after=printed)
        seen = time.monotonic()
        agent.wait_until(partial(is_quiet, loads, seen), "right answers only")
        reports = [load.report() for load in loads]
        assert not held.ask().failures

    assert any(map(wrong, reports)) is not harmless
    assert last_wrong(reports, began) < began + allowed(WITHIN) + watch.stood
    assert rules_of(served.world.nft(NODE, "list ruleset")) == rules_of(intact)


@pytest.mark.parametrize(
    ("damage", "table"),
    [
        pytest.param("flush chain ip nodeagent prerouting", "ip nodeagent", id="IPv4 rules of a chain deleted"),
        pytest.param("flush chain ip6 nodeagent prerouting", "ip6 nodeagent", id="IPv6 rules of a chain deleted"),
        pytest.param("delete table ip6 nodeagent", "ip nodeagent", id="IPv6 table deleted"),
        pytest.param("chain ip nodeagent prerouting { policy drop; }", "ip nodeagent", id="everything else dropped"),
    ],
)
@pytest.mark.usefixtures("churn")
def test_a_flushed_table_is_repaired_within_a_second_during_constant_changes(
    served: Cluster, agent: AgentProcess, sparse_loads: list[Loading], damage: str, table: str
) -> None:
    """A commit of ours must not make a generation known in which somebody else did something too."""
    agent.wait_until(lambda: all(load.report().attempts > 5 for load in sparse_loads), "some load")
    chain = f"list chain {table} prerouting"
    intact = rules_of(served.world.nft(NODE, chain))
    for _ in range(3):
        began, watch = time.monotonic(), Stopwatch([agent.pid])
        served.world.nft(NODE, damage)
        agent.wait_until(partial(is_quiet, sparse_loads, began + QUIET), "right answers only")
        assert last_wrong([load.report() for load in sparse_loads], began) < began + allowed(WITHIN) + watch.stood
        assert rules_of(served.world.nft(NODE, chain)) == intact
    assert agent.running


def is_quiet(loads: list[Loading], since: float) -> bool:
    """Whether the last wrong answer was some time ago, and that moment, too. The loads are asked only when it can be."""
    if time.monotonic() <= QUIET + since:
        return False
    return time.monotonic() > QUIET + last_wrong([load.report() for load in loads], since)


def rules_of(listing: str) -> list[str]:
    """A listing without what counts packets and without the order of elements, which a rebuilt table changes."""
    return sorted(word for word in listing.replace(",", " ").split() if not word.isdigit())


def test_a_service_that_comes_while_others_meddle_is_served(served: Cluster, agent: AgentProcess) -> None:
    """The commit fails on the missing table; the pass begins again from what the kernel has."""
    for pod in (*PODS, *PODS):
        served.world.nft(NODE, "flush ruleset")
        service = served.expose("meddled", *MEDDLED, pods=[pod])
        agent.wait_until(partial(answers, served, pod), "the service")
        served.withdraw(service)


@pytest.fixture(params=["ct state new accept", "type nat hook postrouting priority 100; masquerade"])
def others(served: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """Another table because of which connections are tracked, or translated, while ours is gone."""
    chain = str(request.param) if "hook" in request.param else f"type filter hook input priority 0; {request.param}"
    served.world.nft(NODE, f"table inet theirs {{ chain c {{ {chain}\n}}\n}}")
    yield
    served.world.nft(NODE, "delete table inet theirs")


@pytest.mark.parametrize("family", [0, 1], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.usefixtures("others")
def test_a_udp_client_that_began_without_a_table_is_served_after_the_repair(
    served: Cluster, agent: AgentProcess, dns: Service, client: str, family: int
) -> None:
    """It keeps its port, and so the flow that nothing translated, for as long as it sends."""
    outside = client == "outside"
    address, port = (served.world[NODE].addresses[family], NODE_PORT) if outside else (DNS[family], 53)

    def is_answered(source_port: int = 0) -> bool:
        dial = served.world[client].ask(address, port, Protocol.UDP, timeout=0.2, source_port=source_port)
        return bool(dial.names)

    agent.wait_until(is_answered, "the service")
    began = partial(is_answered, next(CLIENT_PORTS))
    printed = len(agent.lines)
    agent.signal(signal.SIGSTOP)
    try:
        served.world.nft(NODE, "delete table ip nodeagent; delete table ip6 nodeagent")
        assert not began()
    finally:
        agent.signal(signal.SIGCONT)
    agent.wait_for_line("was changed by another process", after=printed)
    agent.wait_until(began, "an answer")


@pytest.fixture(scope="module")
def dns(served: Cluster) -> Service:
    """A service by UDP, with a node port."""
    for pod in PODS:
        served.world[pod].serve(8080, Protocol.UDP)
    return served.expose("dns", *DNS, pods=PODS, ports=[service_port(53, Protocol.UDP, node_port=NODE_PORT)])


def answers(cluster: Cluster, pod: str) -> bool:
    return cluster.world["caller"].ask(MEDDLED[1], 80, timeout=0.2).names == {pod: 1}
