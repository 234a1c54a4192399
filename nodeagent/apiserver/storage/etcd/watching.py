"""An endless watch: if its member is silent, it continues on another one at the same position."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.cluster_client import CALL_SECONDS, Client, EtcdFailed
from nodeagent.apiserver.storage.etcd.etcd_messages import WatchEvent
from nodeagent.apiserver.storage.etcd.rpc import CallFailed, Member, Stream, in_own_task
from nodeagent.apiserver.storage.etcd.versions import parse_version, reports_progress_correctly
from nodeagent.runtime.first_end import until_one_ends
from nodeagent.wire.protobuf import Malformed

logger = logging.getLogger(__name__)
_WATCH: Final = "/etcdserverpb.Watch/Watch"
_REQUEST_EVERY_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 3.0
"""After this long without a message, although progress is requested every second, another member is used."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_ALL_KEYS: Final = (b"\0", b"\0")


class HistoryCompacted(Exception):
    """The watch cannot continue: changes after its position were compacted. `revision`: the new start of the history."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"history begins at revision {revision}")
        self.revision = revision


class _LeaveMember(Exception):
    """The watch should use another member."""


class Watching:
    """Follows a range of keys. Calls `on_events` with all events of a revision together, each once and in order.

    A member may report progress while nothing changes. Releases that report it too early are not trusted: with those all keys
    are watched, the only range in which every revision changes something.
    """

    def __init__(
        self,
        client: Client,
        start: bytes,
        end: bytes,
        *,
        on_events: Callable[[Sequence[WatchEvent]], None],
        on_position: Callable[[int], None],
    ) -> None:
        self._client = client
        self._range = (start, end)
        self._on_events = on_events
        self._on_position = on_position
        self._refused = ""
        self._progress_wanted = asyncio.Event()
        self.position = 0
        """All revisions up to this one have been delivered."""
        self._latest_sign = 0.0
        client.on_switch(self._progress_wanted.set)

    def request_progress(self) -> None:
        """Makes the watch request the member's progress at once."""
        self._progress_wanted.set()

    async def run(self, position: int) -> None:
        """Follows all changes after `position`, until cancelled. Raises HistoryCompacted."""
        self.position = position
        pause = _FIRST_PAUSE_SECONDS
        while True:
            member = self._client.member
            began, began_at = self.position, time.monotonic()
            try:
                await in_own_task(self._follow(member), None)
            except _LeaveMember as left:
                logger.debug("watch leaves a member member=%s reason=%s", member.endpoint, left)
            except CallFailed as failed:
                logger.debug("watch ended member=%s error=%s", member.endpoint, failed)
            self._client.switch_from(member)
            lasted = self.position > began or time.monotonic() - began_at > _SILENCE_SECONDS
            pause = _FIRST_PAUSE_SECONDS if lasted else min(pause * 2, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def _follow(self, member: Member) -> None:
        try:
            status = await self._client.status(member)
        except EtcdFailed as failed:
            raise _LeaveMember(str(failed)) from None
        trusts_progress = reports_progress_correctly(parse_version(status.version))
        start, end = self._range if trusts_progress else _ALL_KEYS
        async with member.stream(_WATCH, {"hasleader": "true"}, CALL_SECONDS) as stream:
            await stream.send(etcd_messages.watch_create(start, end, self.position + 1))
            self._latest_sign = time.monotonic()
            tasks = (
                asyncio.create_task(self._listen(member, stream, trusts_progress), name="etcd-watch-listen"),
                asyncio.create_task(self._request_progress(member, stream), name="etcd-watch-request_progress"),
            )
            await until_one_ends(tasks)

    async def _request_progress(self, member: Member, stream: Stream) -> None:
        while True:
            try:
                async with asyncio.timeout(_REQUEST_EVERY_SECONDS):
                    await self._progress_wanted.wait()
            except TimeoutError:
                pass
            self._progress_wanted.clear()
            if member is not self._client.member:
                raise _LeaveMember("it did not answer another call")
            if time.monotonic() - self._latest_sign > _SILENCE_SECONDS:
                raise _LeaveMember("it is silent")
            await stream.send(etcd_messages.watch_progress())

    async def _listen(self, member: Member, stream: Stream, trusts_progress: bool) -> None:
        while True:
            try:
                reply = etcd_messages.read_watch(await stream.receive())
            except Malformed as error:
                raise _LeaveMember(str(error)) from None
            self._latest_sign = time.monotonic()
            if reply.canceled:
                if reply.compact_revision:
                    raise HistoryCompacted(reply.compact_revision)
                if reply.reason and reply.reason != self._refused:
                    logger.warning("etcd refuses the watch member=%s reason=%s", member.endpoint, reply.reason)
                self._refused = reply.reason
                raise _LeaveMember(reply.reason or "it ended the watch")
            if reply.events:
                self._take(reply.events)
            elif not reply.created and trusts_progress:
                self._move(reply.header.revision)

    def _take(self, events: Sequence[WatchEvent]) -> None:
        # Some releases repeat events after a member was restarted.
        news = [event for event in events if event.kv.mod_revision > self.position]
        if news:
            self._on_events(news)
            self._move(news[-1].kv.mod_revision)

    def _move(self, position: int) -> None:
        if position > self.position:
            self.position = position
            self._on_position(position)
