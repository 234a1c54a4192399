"""Who gets answers, and what a known pod's search path does for it."""

import asyncio
import socket
from collections.abc import Sequence

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from nodeagent.model.addresses import pack_address
from nodeagent.model.name_counts import UpstreamCounts
from nodeagent.names.feed.feed_messages import Begin, End, Namespaces, Pods, Put, Served, Settings
from nodeagent.names.served_clients import served_ranges
from nodeagent.names.server import clients
from nodeagent.names.server.clients import Clients, SearchPaths
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import MOST_FORWARDED, Front, Tasks, Waiting
from nodeagent.names.server.udp import UdpListener
from nodeagent.names.shares import Client
from nodeagent.names.zone.service_names import NamedPort, ServiceNames
from nodeagent.wire.dns.codes import Rcode
from nodeagent.wire.dns.query import answer_with, read_query
from tests.harness.dns.no_upstream import NoUpstream
from tests.harness.dns.scripted_resolver import ScriptedResolver

POD, SHARED, STRANGER = "10.244.0.5", "10.244.0.6", "10.244.0.7"
SEARCH = "shop.svc.cluster.local."
HTTP = (NamedPort("http", "tcp", 80),)


class Resolver:
    """Counts what is asked upstream."""

    def __init__(self) -> None:
        self._script = ScriptedResolver()
        self.asked: list[str] = []

    async def run(self) -> None: ...

    def figures(self) -> UpstreamCounts:
        return UpstreamCounts()

    async def resolve(self, query: bytes, client: Client) -> bytes:
        self.asked.append(dns.message.from_wire(query).question[0].name.to_text())
        return self._script.reply(query) or answer_with(read_query(query), Rcode.SERVFAIL)


class Scene:
    """web.shop and web.media, db.media, and pods of shop and of both at one address."""

    def __init__(self, node_search: Sequence[str] = ()) -> None:
        fed = ReceivedState(Settings())
        fed.take(Begin())
        fed.take(Namespaces(("shop", "media"), 1))
        fed.take(Pods(((POD, ("shop",)), (SHARED, ("shop", "media"))), 1))
        names = [("shop", "web", "10.96.0.1"), ("media", "web", "10.96.0.2"), ("media", "db", "10.96.0.3")]
        fed.take(Put(tuple(ServiceNames(ns, name, cluster_ips=(ip,), ports=HTTP) for ns, name, ip in names), 1))
        fed.take(Put((ServiceNames("media", "away", external_name="www.example.com"),), 1))
        fed.take(End(1))
        self.resolver = Resolver()
        paths = SearchPaths("cluster.local", lambda: node_search)
        self.front = Front(fed.answers, self.resolver, Clients(), paths)

    def ask(self, name: str, kind: str = "A", client: str = POD, *, edns: bool = False) -> dns.message.Message:
        packet = dns.message.make_query(name, kind, use_edns=0 if edns else -1).to_wire()
        answer = self.front.reply(packet, tcp=False, client=client)
        if isinstance(answer, Waiting):
            answer = asyncio.run(self.front.resolve(answer))
        assert answer is not None
        return dns.message.from_wire(answer)

    def said(self, name: str, kind: str = "A", client: str = POD) -> list[str]:
        """The rcode, then owner and data of the answer's records."""
        reply = self.ask(name, kind, client)
        records = [f"{rrset.name} {one}" for rrset in reply.answer for one in rrset]
        return [dns.rcode.to_text(reply.rcode()), *records]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_known_pods_first_step_leads_to_a_name_outside(scene: Scene) -> None:
    first = f"www.example.com.{SEARCH}"
    assert scene.said(first) == ["NOERROR", f"{first} www.example.com.", "www.example.com. 192.0.2.53"]
    assert scene.said(first, "AAAA") == ["NOERROR", f"{first} www.example.com.", "www.example.com. 2001:db8::53"]
    assert scene.resolver.asked == ["www.example.com.", "www.example.com."]


@pytest.mark.parametrize("client", [SHARED, STRANGER, ""])
def test_for_others_the_first_step_is_what_it_is(scene: Scene, client: str) -> None:
    assert scene.said(f"www.example.com.{SEARCH}", client=client) == ["NXDOMAIN"]
    assert scene.resolver.asked == []


def test_a_step_in_the_cluster_is_found_without_asking_anybody(scene: Scene) -> None:
    first = f"Db.Media.{SEARCH}"
    target = "Db.Media.svc.cluster.local."
    assert scene.said(first) == ["NOERROR", f"{first} {target}", f"{target} 10.96.0.3"]
    reply = scene.ask(first, "AAAA", edns=True)
    assert reply.rcode() == dns.rcode.NOERROR
    assert reply.answer == []
    assert reply.authority[0].rdtype == dns.rdatatype.SOA
    assert reply.flags & dns.flags.AA
    assert reply.edns == 0
    assert scene.resolver.asked == []


def test_a_name_of_the_pods_own_namespace_is_not_walked_on(scene: Scene) -> None:
    assert scene.said(f"web.{SEARCH}") == ["NOERROR", f"web.{SEARCH} 10.96.0.1"]
    assert scene.said(f"web.{SEARCH}", "AAAA") == ["NOERROR"]
    assert scene.said("www.example.com.svc.cluster.local.") == ["NXDOMAIN"]


def test_an_external_name_on_the_way_is_followed(scene: Scene) -> None:
    first = f"away.media.{SEARCH}"
    expected = [f"{first} away.media.svc.cluster.local.", "away.media.svc.cluster.local. www.example.com."]
    assert scene.said(first) == ["NOERROR", *expected, "www.example.com. 192.0.2.53"]


def test_a_name_that_is_nowhere_is_the_first_steps_nxdomain(scene: Scene) -> None:
    assert scene.said(f"nothing.example.com.{SEARCH}") == ["NXDOMAIN"]
    assert scene.resolver.asked == ["nothing.example.com."]


def test_a_failure_ends_the_walk_and_is_answered() -> None:
    scene = Scene(["example.com"])
    assert scene.said(f"fail.{SEARCH}") == ["SERVFAIL"]
    assert scene.resolver.asked == ["fail.example.com."]


def test_no_data_at_the_last_step_is_no_data_for_the_first(scene: Scene) -> None:
    assert scene.said(f"v6only.example.com.{SEARCH}") == ["NOERROR"]


def test_the_nodes_search_domains_are_walked_too() -> None:
    scene = Scene(["example.net", "example.com"])
    first = f"www.{SEARCH}"
    assert scene.said(first) == ["NOERROR", f"{first} www.example.com.", "www.example.com. 192.0.2.53"]
    assert scene.resolver.asked == ["www.example.net.", "www.example.com."]


@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2"])
def test_a_prepared_nxdomain_is_no_answer_for_a_known_pod(scene: Scene, client: str) -> None:
    """By the socket: the quick way must not answer what a walk finds. The pod is 127.0.0.1."""
    scene.front.answers.lookup.index.put_pods([("127.0.0.1", ["shop"])])
    packet = dns.message.make_query(f"db.media.{SEARCH}", "A").to_wire()
    assert scene.front.reply(packet, tcp=False, client="127.0.0.9")  # prepared now
    reply = dns.message.from_wire(asyncio.run(by_socket(scene.front, packet, client)))
    assert reply.rcode() == (dns.rcode.NOERROR if client == "127.0.0.1" else dns.rcode.NXDOMAIN)


@pytest.mark.parametrize(("client", "rcode"), [("127.0.0.1", dns.rcode.NOERROR), ("127.0.0.2", dns.rcode.REFUSED)])
def test_a_client_that_is_not_served_is_refused(scene: Scene, client: str, rcode: int) -> None:
    class OnlyOne(Clients):
        def are_served(self, client: str) -> bool:
            return client == "127.0.0.1"

    front = Front(scene.front.answers, scene.resolver, OnlyOne())
    packet = dns.message.make_query("web.shop.svc.cluster.local.", "A").to_wire()
    for _ in range(2):
        assert dns.message.from_wire(asyncio.run(by_socket(front, packet, client))).rcode() == rcode


async def by_socket(front: Front, packet: bytes, client: str) -> bytes:
    """The reply to a query that this address of loopback sends."""
    loop = asyncio.get_running_loop()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking,
    ):
        server.bind(("127.0.0.1", 0))
        asking.bind((client, 0))
        asking.setblocking(False)
        asking.connect(server.getsockname())
        listener = UdpListener(server, front, Tasks())
        listener.start()
        asking.send(packet)
        try:
            return await asyncio.wait_for(loop.sock_recv(asking, 4096), 60)
        finally:
            listener.stop()


def test_changes_of_the_served_clients_count_at_once() -> None:
    clients = Clients(["192.0.2.53"])
    assert [clients.are_served(one) for one in ("10.244.0.5", "192.0.2.53", "198.51.100.1")] == [True, True, False]
    assert clients.known == {pack_address("10.244.0.5"), pack_address("192.0.2.53")}
    clients.serve(Served(("10.244.0.0/16",), ("198.51.100.1",)))
    assert clients.known == set()
    asked = ("10.244.0.5", "10.245.0.5", "198.51.100.1", "192.0.2.53", "fd00::1")
    assert [clients.are_served(one) for one in asked] == [True, False, True, True, False]


@pytest.mark.parametrize(
    ("clients", "pods", "served", "refused"),
    [
        pytest.param((), (), "10.0.0.1 fd00::1 fe80::1 100.64.0.1", "198.51.100.1 2001:db8::1", id="nothing-known"),
        pytest.param((), ("10.244.0.0/16",), "10.244.0.1 fd00::1", "10.0.0.1 192.168.0.1", id="ipv4-pods-known"),
        pytest.param(("203.0.113.0/24",), ("10.244.0.0/16", "fd00:1::/64"), "203.0.113.9", "fd00:2::1", id="more"),
        pytest.param(("0.0.0.0/0", "::/0"), (), "198.51.100.1 2001:db8::1", "", id="everybody"),
    ],
)
def test_the_ranges_that_are_served(clients: tuple[str, ...], pods: tuple[str, ...], served: str, refused: str) -> None:
    decided = Clients()
    decided.serve(Served(served_ranges(clients, pods), ()))
    assert all(map(decided.are_served, served.split()))
    assert not any(map(decided.are_served, refused.split()))


def test_one_client_that_waits_for_upstream_leaves_room_for_others() -> None:
    async def scene() -> None:
        front = Front(ReceivedState(Settings()).answers, Never())
        packets = [dns.message.make_query(f"n{number}.example.com.", "A").to_wire() for number in range(MOST_FORWARDED)]
        waiting = []
        for packet in packets:
            made = front.reply(packet, tcp=False, client="10.244.1.7")
            if isinstance(made, Waiting):
                waiting.append(asyncio.create_task(front.resolve(made)))
                await asyncio.sleep(0)
        assert len(waiting) == MOST_FORWARDED // 2
        assert front.rejected == MOST_FORWARDED // 2
        assert isinstance(front.reply(packets[0], tcp=False, client="10.244.1.8"), Waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(front.reply(packets[0], tcp=False, client="10.244.1.7"), Waiting)

    asyncio.run(scene())


def test_forged_addresses_keep_no_client_from_being_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is remembered is answered without a look at the ranges."""
    monkeypatch.setattr(clients, "MOST_KNOWN", 100)
    known = Clients()
    for number in range(250):
        assert known.are_served(f"10.9.{number >> 8}.{number & 255}")
    assert known.are_served(POD)
    assert pack_address(POD) in known.known
    assert len(known.known) <= 100


class Never(NoUpstream):
    """Nobody answers."""

    async def resolve(self, query: bytes, client: Client) -> bytes:
        await asyncio.Event().wait()
        return await super().resolve(query, client)
