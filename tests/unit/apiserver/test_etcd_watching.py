"""What is watched, and whether a member is believed how far it has come, depends on the release of that member alone."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.cluster_client import EtcdFailed
from nodeagent.apiserver.storage.etcd.etcd_messages import Header, StatusReply
from nodeagent.apiserver.storage.etcd.outcomes import Outcome
from nodeagent.apiserver.storage.etcd.rpc import CallFailed
from nodeagent.apiserver.storage.etcd.watching import Watching

CREATED = bytes([0x18, 1])
NO_RIGHTS = bytes([0x20, 1, 0x32, 6]) + b"denied"
BELOW, ALL = (b"/registry/", b"/registry0"), (b"\0", b"\0")


def reached(revision: int) -> bytes:
    """An answer that says only how far the watch has come."""
    return bytes([0x0A, 2, 0x18, revision])


class Scripted:
    """A member of a release, None for one that does not answer, whose watch says something and ends."""

    def __init__(self, version: str | None, *says: bytes) -> None:
        self.endpoint = version
        self.version = version
        self.asked: list[bytes] = []
        self._says = says

    @asynccontextmanager
    async def stream(self, *_: object) -> AsyncIterator[Any]:
        self._left = list(self._says)
        yield self

    async def send(self, message: bytes) -> None:
        self.asked.append(message)

    async def receive(self) -> bytes:
        if self._left:
            return self._left.pop(0)
        raise CallFailed(CallFailed.LOST, "the stream has ended")


class Members:
    """As the client shows them: one after the other, round and round."""

    def __init__(self, *members: Scripted, moves: int) -> None:
        self._members = list(members)
        self._wanted = moves
        self.moves = 0
        self.enough = asyncio.Event()

    @property
    def member(self) -> Scripted:
        return self._members[self.moves % len(self._members)]

    def on_switch(self, _: Callable[[], None]) -> None:
        pass

    def switch_from(self, _: Scripted) -> None:
        self.moves += 1
        if self.moves == self._wanted:
            self.enough.set()

    async def status(self, member: Scripted) -> StatusReply:
        if member.version is None:
            raise EtcdFailed(Outcome.NOT_DONE, "no answer")
        return StatusReply(Header(), member.version, 1)


def follow(*followed: Scripted, moves: int) -> list[int]:
    """The positions that were reported until a member was left so often."""
    positions: list[int] = []

    async def scenario() -> None:
        members: Any = Members(*followed, moves=moves)
        watching = Watching(members, *BELOW, on_events=lambda _: None, on_position=positions.append)
        task = asyncio.create_task(watching.run(1))
        async with asyncio.timeout(60):
            await members.enough.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    return positions


@pytest.mark.parametrize(
    ("version", "watched", "believed"),
    [("3.4.23", ALL, []), ("3.5.12", ALL, []), ("3.5.13", BELOW, [7]), ("3.6.0", BELOW, [7]), ("nonsense", ALL, [])],
)
def test_a_member_is_believed_by_its_release(version: str, watched: tuple[bytes, bytes], believed: list[int]) -> None:
    member = Scripted(version, CREATED, reached(7))
    # That another one does not answer says nothing about this one.
    assert follow(Scripted(None), member, moves=2) == believed
    assert member.asked[0] == etcd_messages.watch_create(*watched, 2)


def test_each_member_is_asked_when_it_is_followed() -> None:
    old, new = Scripted("3.4.23", CREATED, reached(7)), Scripted("3.5.28", CREATED, reached(9))
    assert follow(old, new, moves=2) == [9]
    assert old.asked[0] == etcd_messages.watch_create(*ALL, 2)
    assert new.asked[0] == etcd_messages.watch_create(*BELOW, 2)


def test_a_refused_watch_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        follow(Scripted("3.5.28", NO_RIGHTS), moves=3)
    assert [record.getMessage() for record in caplog.records] == ["etcd refuses the watch member=3.5.28 reason=denied"]
