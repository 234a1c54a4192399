"""A call whose connection is lost, and then one that is not answered in time: each says so, and the task that asked goes on."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.etcd.rpc import CallFailed, Endpoint, Member

METHOD = "/etcdserverpb.KV/Range"
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.05)
    writer.close()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)
    writer.close()


async def code_of(peer: Peer, seconds: float) -> str:
    server = await asyncio.start_server(peer, "127.0.0.1", 0)
    member = Member(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), None)
    try:
        await member.call(METHOD, b"", seconds)
    except CallFailed as failed:
        return failed.code
    finally:
        member.close()
        server.close()
        await server.wait_closed()
    return ""


def test_after_a_lost_connection_time_is_up_as_ever() -> None:
    async def scenario() -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(2):
            assert await code_of(hang_up, 60) == CallFailed.LOST
            assert await code_of(say_nothing, 0.1) == CallFailed.LATE
        assert task.cancelling() == 0
        late = False
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            late = True
        assert late

    asyncio.run(scenario())


def test_a_member_that_is_not_there_was_never_asked() -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        client = Client([Endpoint("127.0.0.1", port)])
        with pytest.raises(CallFailed) as found:
            await client.member.call(METHOD, b"", 60)
        assert found.value.code == CallFailed.REFUSED
        client.close()

    asyncio.run(scenario())
