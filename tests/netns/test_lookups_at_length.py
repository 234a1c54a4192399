"""A hundred thousand lookups in one go, through all that happens to those who answer: none fails, and none is answered with
what was so before."""

import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

import dns.message
import pytest

from nodeagent.lab.net.network_namespaces import enter
from nodeagent.model.addresses import family_of
from tests.harness.api_cluster import ApiCluster, controlled_topology
from tests.harness.cluster import NODE, cluster_ips
from tests.harness.dns.leftover import kill_dns_processes
from tests.harness.dns.lookups import ANSWER_OF_SERVERS, servers_in
from tests.harness.effort import examples
from tests.harness.stopwatch import waited_for_processor
from tests.harness.warm_start import AGENT
from tests.harness.worlds.world import World

LOOKUPS = examples(4000)
"""100,000 with the effort of `make laws`."""
DNS = cluster_ips(10)
SERVERS = ("web-0", "web-1")
WAYS = (
    ("caller", DNS[0], socket.SOCK_DGRAM),
    ("caller", DNS[1], socket.SOCK_DGRAM),
    ("caller", DNS[0], socket.SOCK_STREAM),
    (NODE, DNS[0], socket.SOCK_DGRAM),
)
QUERY = dns.message.make_query("fresh.default.svc.cluster.local.", "A", id=1).to_wire()
PODS = 4
"""Of the Service; each change replaces one, so that four of them roll over all."""
FIRST = int(IPv4Address("10.200.0.0"))
SERVERS_SAY = socket.inet_aton(ANSWER_OF_SERVERS)
RESOLVER_SECONDS, TRIES = 5.0, 3
"""After which resolvers ask again, and how often: what a process had read when it was killed is gone with it."""
MOST_STALE_SECONDS = 0.1
DEADLINE_SECONDS = 300.0
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
FLAGS = ("--dns-upstreams", "127.0.0.1:9")


@dataclass
class SentState:
    """A state of the Service. begun: when it was written. at: when the API server said that it has it. waited: what those it
    depends on had waited for a processor before. judged: whether they all received it at once."""

    begun: float
    at: float
    waited: float
    judged: bool


@dataclass
class History:
    """What was sent, and what lookups saw of it. ours, theirs: answers of this node, and of the servers in pods."""

    sent: dict[int, SentState] = field(default_factory=dict)
    latest: int = PODS - 2
    ours: int = 0
    theirs: int = 0
    repeated: int = 0
    most_stale_seconds: float = 0.0
    most_since_begun_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)
    depends_on: tuple[int, ...] = ()

    @property
    def lookups(self) -> int:
        return self.ours + self.theirs

    def take(self, answer: bytes, asked: float, seen_before: int) -> None:
        """An answer to a question that was asked then, when `seen_before` was the latest state seen."""
        found = addresses_in(answer)
        if found == [SERVERS_SAY]:
            self.theirs += 1
            return
        numbers = sorted(int.from_bytes(one, "big") - FIRST for one in found)
        state = numbers[-1] if numbers else -1
        if numbers != list(range(state - PODS + 1, state + 1)) or state not in self.sent:
            self.faults.append(f"no state of the Service: {numbers}")
        elif state < seen_before:
            self.faults.append(f"{state} was answered after {seen_before}")
        self.ours += 1
        self.latest = max(self.latest, state)
        following = self.sent.get(state + 1)
        if following is not None and following.judged:
            stood = max(0.0, waited_for_processor(self.depends_on) - following.waited)
            self.most_stale_seconds = max(self.most_stale_seconds, asked - following.at - stood)
            self.most_since_begun_seconds = max(self.most_since_begun_seconds, asked - following.begun - stood)


def addresses_in(answer: bytes) -> list[bytes]:
    """The addresses of a response that has nothing but A records of the name behind its question."""
    (count,) = struct.unpack_from(">H", answer, 6)
    size = (len(answer) - len(QUERY)) // max(1, count)
    return [answer[len(QUERY) + size * (number + 1) - 4 :][:4] for number in range(count)]


def keep_asking(cluster: ApiCluster, history: History, member: str, server: str, kind: socket.SocketKind) -> None:
    """From one place by one way, each time from another port, until the end."""
    enter(cluster.world.namespace(member))
    while not history.ending.is_set():
        seen, asked = history.latest, time.monotonic()
        for _ in range(TRIES):
            try:
                with socket.socket(family_of(server).socket_family, kind) as sock:
                    sock.settimeout(RESOLVER_SECONDS)
                    sock.connect((server, 53))
                    answer = exchanged(sock)
            except OSError:
                history.repeated += 1
            else:
                history.take(answer, asked, seen)
                break
        else:
            history.faults.append(f"{member} got no answer of {server} by {kind.name}")


def exchanged(sock: socket.socket) -> bytes:
    """One question and the bytes of its answer. Raises OSError."""
    if sock.type == socket.SOCK_DGRAM:
        sock.send(QUERY)
        return sock.recv(4096)
    with sock.makefile("rwb") as stream:
        stream.write(len(QUERY).to_bytes(2, "big") + QUERY)
        stream.flush()
        head = stream.read(2)
        answer = stream.read(int.from_bytes(head, "big"))
    if len(head) < 2 or len(answer) < int.from_bytes(head, "big"):
        raise ConnectionError("closed")
    return answer


class Story:
    """What is done while lookups go on."""

    def __init__(self, cluster: ApiCluster) -> None:
        self.cluster = cluster
        self.history = History()
        api = cluster.api
        ports = [{"name": proto.lower(), "protocol": proto, "port": 53} for proto in ("UDP", "TCP")]
        spec = {"clusterIP": DNS[0], "clusterIPs": list(DNS), "ipFamilyPolicy": "RequireDualStack", "ports": ports}
        api.create("/api/v1/namespaces/kube-system/services", {"metadata": {"name": "kube-dns"}, "spec": spec})
        for number, family in enumerate(("IPv4", "IPv6")):
            addresses = [cluster.world[pod].addresses[number] for pod in SERVERS]
            api.create(SLICES.format("kube-system"), a_slice("kube-dns", family, addresses, ports))
        headless = {"clusterIP": "None", "ports": [{"port": 80}]}
        api.create("/api/v1/namespaces/default/services", {"metadata": {"name": "fresh"}, "spec": headless})
        api.create(
            SLICES.format("default"), a_slice("fresh", "IPv4", addresses_of(PODS - 1), [{"name": "", "port": 80}])
        )
        self.history.sent[PODS - 1] = SentState(time.monotonic(), time.monotonic(), 0.0, judged=False)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Lookups all the time, from everywhere."""
        threads = [threading.Thread(target=keep_asking, args=(self.cluster, self.history, *way)) for way in WAYS]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.history.ending.set()
            for thread in threads:
                thread.join()

    def change(self, *, judged: bool = True) -> None:
        """Replace one pod by a new one."""
        state = max(self.history.sent) + 1
        processes = (self.cluster.server.pid, self.cluster.agent.pid, self.dns_process())
        self.history.depends_on = processes
        waited = waited_for_processor(processes)
        # Lookups may see it before the API server has answered us.
        sent = self.history.sent[state] = SentState(time.monotonic(), float("inf"), waited, judged=judged)
        endpoints = [{"addresses": [address], "conditions": {"ready": True}} for address in addresses_of(state)]
        self.cluster.api.merge(f"{SLICES.format('default')}/fresh-ipv4", {"endpoints": endpoints})
        sent.at = time.monotonic()

    def roll_over(self, lookups: int) -> None:
        """Replace pods, the next when the one before was seen, all of them at least once, until so many lookups have been."""
        begun = max(self.history.sent)
        while self.history.lookups < lookups or max(self.history.sent) < begun + PODS:
            self.change()
            self.until(lambda: self.history.latest == max(self.history.sent), "the change is answered")

    def until_more(self, lookups: int) -> None:
        """Let so many lookups more be."""
        wanted = self.history.lookups + lookups
        self.until(lambda: self.history.lookups >= wanted, "more lookups")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it."""
        end = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert not self.history.faults, self.history.faults[:3]
            assert time.monotonic() < end, f"not within {DEADLINE_SECONDS:.0f} s: {what}; {self.history}"
            time.sleep(0.002)

    def until_ours(self) -> None:
        """Until this node answers on every way."""
        wanted = self.history.ours + 20 * len(WAYS)
        self.until(lambda: self.history.ours >= wanted, "answers of this node")

    def dns_process(self) -> int:
        """The latest that an agent started."""
        started = [found for line in self.cluster.agent.lines if (found := re.search(r"DNS process pid=(\d+)", line))]
        return int(started[-1][1])


def addresses_of(state: int) -> list[str]:
    return [str(IPv4Address(FIRST + number)) for number in range(state - PODS + 1, state + 1)]


def a_slice(
    service: str, family: str, addresses: list[str], ports: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    return {
        "metadata": {"name": f"{service}-{family.lower()}", "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
        "ports": ports,
    }


@pytest.fixture
def story(build_world: Callable[..., World], tmp_path: Path) -> Iterator[Story]:
    cluster = ApiCluster(build_world(controlled_topology()), tmp_path)
    cluster.start_server()
    cluster.declare_nodes()
    yield Story(cluster)
    cluster.stop_agent()
    kill_dns_processes(cluster.world.namespace(NODE))
    cluster.world.run(NODE, [*AGENT, "cleanup"])


def test_stale_answers_and_answers_that_go_back_are_found() -> None:
    history = History(
        sent={state: SentState(time.monotonic() - 2, time.monotonic() - 1, 0.0, judged=True) for state in (3, 4)}
    )
    answer = QUERY[:6] + b"\0\4" + QUERY[8:]
    answer += b"".join(b"\xc0\x0c" + bytes(10) + socket.inet_aton(address) for address in addresses_of(3))
    history.take(answer, time.monotonic(), seen_before=3)
    assert history.faults == []
    assert 1 <= history.most_stale_seconds < history.most_since_begun_seconds
    history.take(answer, time.monotonic(), seen_before=4)
    assert history.faults == ["3 was answered after 4"]
    history.take(answer[:-1] + b"\x77", time.monotonic(), seen_before=3)
    assert history.faults[-1].startswith("no state of the Service")


@pytest.mark.at_length
def test_no_lookup_fails_and_none_is_stale(story: Story) -> None:
    cluster, history, share = story.cluster, story.history, LOOKUPS // 8
    with servers_in(cluster, *SERVERS):  # type: ignore[arg-type]  # of a cluster it needs the world
        cluster.start_agent(*FLAGS)
        with story.asking():
            story.until_more(100)  # another resolver, in pods
            assert history.ours == 0
            cluster.start_agent("--dns", "--dns-listen", ",".join(DNS), *FLAGS)  # handed over
            story.until_ours()
            story.until_more(share)
            theirs = history.theirs
            story.roll_over(2 * share)
            assert history.theirs == theirs

            process = story.dns_process()
            os.kill(process, signal.SIGKILL)
            story.until(lambda: story.dns_process() != process, "another process")
            story.until_ours()
            story.roll_over(3 * share)

            cluster.agent.stop()
            story.until_more(share)
            cluster.restart_agent()
            story.roll_over(5 * share)

            cluster.server.stop()
            story.until_more(share)
            cluster.restart_server()
            story.change(judged=False)  # the agent has first to find out that it is there again
            story.roll_over(7 * share)

            ours = history.ours
            cluster.start_agent(*FLAGS)  # given back
            cluster.agent.wait_for_line("ended the DNS process")
            story.until_more(max(share, LOOKUPS - history.lookups))
            assert history.ours > ours
    print(
        f"{history.lookups} lookups ({history.theirs} answered by pods), {len(history.sent)} pods replaced, "
        f"{history.repeated} asked again, oldest answer {history.most_stale_seconds * 1000:.0f} ms after the API server had its "
        f"change, {history.most_since_begun_seconds * 1000:.0f} ms after it began to be written"
    )
    assert history.faults == []
    assert history.lookups >= LOOKUPS
    assert history.most_stale_seconds < MOST_STALE_SECONDS
