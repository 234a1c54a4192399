"""A resolver for names outside the cluster that answers wrongly: `problems` names it and the cure within ten seconds, and an alert fires.

With one of two, names are resolved as before; with both, a problem says that no name is. After the cure everything is quiet again, which is
the control of the next one.
"""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import dns.message
import dns.rcode
import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.lab.net.topology import NO_BRIDGE
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster
from tests.harness.dns.twisted_resolver import (
    Behaviour,
    TwistedResolver,
    cut_off,
    error,
    garbage,
    late,
    of_another_question,
    silent,
    twisted_resolvers,
    well,
)
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.looks import LATEST_SECONDS, alerts, is_healthy, problems, problems_once, scrape

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

BRIDGE = NO_BRIDGE
SERVER = "169.254.20.10"
PLACES = (("127.0.0.1", 5301), ("127.0.0.1", 5302))
CONTROL_SECONDS = 6.0
BETWEEN_SECONDS = 0.1
"""The longest time between two questions."""
ONE, ALL = "NodeagentDnsUpstreamFaulty", "NodeagentDnsNoUpstream"


class Scene:
    """Pods of a node that ask for names outside the cluster, each name once."""

    def __init__(self, watched: WatchedNode, resolvers: tuple[TwistedResolver, ...]) -> None:
        self.watched = watched
        self.first, self.second = resolvers
        self._asked = 0

    def asked(self, domain: str = "") -> str:
        self._asked += 1
        return f"n{self._asked}.{domain or f'zone{self._asked}.example'}."

    def send(self, domain: str = "") -> None:
        """A pod asks; whatever comes back."""
        query = dns.message.make_query(self.asked(domain), "A").to_wire()

        def ask() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(query, (SERVER, 53))

        inside(self.watched.world.namespace("caller"), ask)

    def answer(self) -> str:
        """What a pod gets within five seconds."""
        query = dns.message.make_query(self.asked(), "A")

        def ask() -> str:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.settimeout(5.0)
                sock.sendto(query.to_wire(), (SERVER, 53))
                return dns.rcode.to_text(dns.message.from_wire(sock.recv(4096)).rcode())

        return inside(self.watched.world.namespace("caller"), ask)

    def in_time(self, what: Callable[[str], bool]) -> str:
        """Pods ask until `problems` has it, in time. Returns `problems`."""
        begun, found = time.monotonic(), ""

        def has_it() -> bool:
            nonlocal found
            self.send()
            found = problems_once(self.watched, what)
            return what(found)

        wait_for(has_it, lambda: found, BETWEEN_SECONDS)
        took = time.monotonic() - begun
        print(f"after {took:.1f} s: {found}")
        assert took < LATEST_SECONDS
        return found

    def is_quiet(self) -> bool:
        self.send()
        return is_healthy(self.watched) and not alerts(scrape(self.watched))


@pytest.fixture(scope="module")
def scene(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("s"))
    with twisted_resolvers(watched.world.namespace(NODE), *PLACES) as resolvers:
        names = ("--dns", "--dns-listen", SERVER, "--dns-upstreams", ",".join(map(str, resolvers)))
        watched.agent = cluster.start_agent(
            *WITH_POD_CIDRS, "--table-ownership=plain", f"--socket={watched.socket}", *names
        )
        yield Scene(watched, resolvers)
        cluster.kill_agents()
        cluster.call("cleanup")


@dataclass(frozen=True)
class Fault:
    """says: what the line has, after the resolver's address; none: whether no name is resolved if all have it."""

    behaves: Behaviour
    reason: str
    says: tuple[str, ...]
    none: bool = True


FAULTS = {
    "no answer": Fault(silent, "UpstreamDown", (" does not answer", "see that it runs and can be reached")),
    "SERVFAIL": Fault(error("SERVFAIL"), "UpstreamFails", (" answers SERVFAIL to every question", "see its log, and ")),
    "REFUSED": Fault(error("REFUSED"), "UpstreamFails", (" answers REFUSED to every question", "(its access list)")),
    "answers that take three seconds": Fault(
        late, "UpstreamSlow", (" takes 3 s for an answer", "see its load and the way to it"), none=False
    ),
    "garbage": Fault(garbage, "UpstreamMalformed", (" sends messages that are malformed", "see which program answers there")),
    "answers to other questions": Fault(
        of_another_question, "UpstreamMalformed", ("or answer other questions", "see which program answers there")
    ),
    "answers that are cut off, and nothing by TCP": Fault(
        cut_off, "UpstreamNoTcp", (" does not answer by TCP", "let TCP to it through"), none=False
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in FAULTS.items()])
def test_a_resolver_that_answers_wrongly_is_named_with_its_cure(scene: Scene, fault: Fault) -> None:
    wait_for(scene.is_quiet, lambda: problems(scene.watched), BETWEEN_SECONDS)
    try:
        scene.first.behaves = fault.behaves
        found = scene.in_time(lambda found: fault.reason in found)
        for text in (f"the resolver {scene.first}", *fault.says, "or change dns.upstreams"):
            assert text in found, found
        assert str(scene.second) not in found
        assert "NoUpstream" not in found
        assert alerts(scrape(scene.watched)) == {ONE}
        assert scene.answer() == "NXDOMAIN", "the other one answers"
        scene.second.behaves = fault.behaves
        found = scene.in_time(
            lambda found: f"the resolver {scene.second}" in found and fault.none is ("NoUpstream" in found)
        )
        assert ("names outside the cluster are not resolved" in found) is fault.none
        assert alerts(scrape(scene.watched)) == {ONE, ALL} if fault.none else {ONE}
    finally:
        scene.first.behaves = scene.second.behaves = well
    wait_for(scene.is_quiet, lambda: problems(scene.watched), BETWEEN_SECONDS)


def test_a_domain_that_fails_is_no_problem(scene: Scene) -> None:
    """Control: its own servers do, and every resolver says so."""

    def all_but_one(query: dns.message.Message, stream: bool) -> bytes:
        is_broken = query.question[0].name.to_text().endswith("broken.example.")
        return (error("SERVFAIL") if is_broken else well)(query, stream)

    wait_for(scene.is_quiet, lambda: problems(scene.watched), BETWEEN_SECONDS)
    scene.first.behaves = scene.second.behaves = all_but_one
    try:
        end = time.monotonic() + CONTROL_SECONDS
        while time.monotonic() < end:
            scene.send("broken.example")
            assert is_healthy(scene.watched), problems(scene.watched)
    finally:
        scene.first.behaves = scene.second.behaves = well
