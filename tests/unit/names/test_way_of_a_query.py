"""Which files a DNS query by UDP passes, from the socket and back."""

import asyncio
import socket
import sys
from pathlib import Path

import dns.message

from nodeagent.names.feed.feed_messages import Begin, End, Put, Settings
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Tasks
from nodeagent.names.server.udp import UdpListener
from nodeagent.names.zone.service_names import NamedPort, ServiceNames
from tests.harness.called_files import CalledFiles
from tests.harness.dns.no_upstream import NoUpstream

HANDED_THROUGH = ["names/server/udp.py", "names/server/datagrams.py"]
MOST_ENTERED = 16
"""Files of which any function runs, for a question that nobody has asked before."""
PREPARED = [*HANDED_THROUGH, "names/zone/prepared_answers.py"]
QUERY = dns.message.make_query("web.shop.svc.cluster.local.", "A").to_wire()


def ways() -> tuple[CalledFiles, CalledFiles]:
    """Returns the ways of the first and of the second query for one name."""
    fed = ReceivedState(Settings())
    names = ServiceNames("shop", "web", cluster_ips=("10.96.0.1",), ports=(NamedPort("", "tcp", 80),))
    for message in (Begin(), Put((names,), 1), End(1)):
        fed.take(message)

    async def query(client: socket.socket) -> CalledFiles:
        followed = CalledFiles(points=(), end="Datagrams.send")
        sys.setprofile(followed)
        try:
            client.send(QUERY)
            answer = await asyncio.to_thread(client.recv, 4096)
        finally:
            sys.setprofile(None)
        assert len(dns.message.from_wire(answer).answer) == 1
        return followed

    async def story() -> tuple[CalledFiles, CalledFiles]:
        with socket.socket(type=socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
            server.bind(("127.0.0.1", 0))
            client.connect(server.getsockname())
            client.settimeout(60)
            listener = UdpListener(server, Front(fed.answers, NoUpstream()), Tasks())
            listener.start()
            found = await query(client), await query(client)
            listener.stop()
        return found

    return asyncio.run(story())


def test_a_query_passes_few_files_and_a_prepared_one_three() -> None:
    first, second = ways()
    assert list(first.handed_through) == HANDED_THROUGH
    assert len(first.entered) <= MOST_ENTERED
    assert sorted(second.entered) == sorted(PREPARED)


def test_the_document_names_the_files() -> None:
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    section = text.partition("## A query on its way")[2].partition("\n## ")[0]
    for file in PREPARED:
        assert f"`{file}`" in section
