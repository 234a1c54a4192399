"""A connection that stalls is closed, but not because of the time in which the process itself was held up; and none is lost when the
process stops to accept."""

import asyncio
import socket
import time

import dns.message
import pytest

from nodeagent.names.feed.feed_messages import Begin, End, Settings
from nodeagent.names.server import tcp
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Tasks
from nodeagent.names.server.tcp import TcpListener
from tests.harness.dns.no_upstream import NoUpstream

HELD_UP_SECONDS = 0.6


def listener_on(server: socket.socket) -> TcpListener:
    fed = ReceivedState(Settings())
    for message in (Begin(), End(1)):
        fed.take(message)
    return TcpListener(server, Front(fed.answers, NoUpstream()), Tasks())


@pytest.mark.parametrize("pieces", [1, 2], ids=["whole", "in two pieces"])
def test_a_query_that_came_while_the_process_was_held_up_is_answered(
    monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(tcp, "STALLED_SECONDS", HELD_UP_SECONDS / 2)
    packet = dns.message.make_query("cluster.local.", "SOA").to_wire()
    data = len(packet).to_bytes(2, "big") + packet

    async def scene() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            listener = listener_on(server)
            await listener.start()
            reader, writer = await asyncio.open_connection(*server.getsockname())
            while not listener.connections:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0)
            for at in range(pieces):
                writer.write(data[at * len(data) // pieces : (at + 1) * len(data) // pieces])
                time.sleep(HELD_UP_SECONDS)  # noqa: ASYNC251  # this is what it is about
                for _ in range(10):
                    await asyncio.sleep(0)
            size = int.from_bytes(await asyncio.wait_for(reader.readexactly(2), 60), "big")
            reply = await reader.readexactly(size)
            writer.close()
            await listener.stop()
            return reply

    assert dns.message.from_wire(asyncio.run(scene())).id == int.from_bytes(packet[:2], "big")


@pytest.mark.parametrize("steps", range(10))
def test_a_connection_is_served_or_left_to_the_next_process(steps: int) -> None:
    """However many steps of the event loop the process has made since it was opened."""

    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            listener = listener_on(server)
            await listener.start()
            with socket.create_connection(server.getsockname()) as client:
                for _ in range(steps):
                    await asyncio.sleep(0)
                await listener.stop()
                if not listener.connections:
                    connection, peer = server.accept()
                    connection.close()
                    assert peer == client.getsockname()

    asyncio.run(scene())
