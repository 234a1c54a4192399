"""Calls to a cluster of several members: one of them is asked until it does not answer, then the next."""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from nodeagent.controlplane.storage.etcd import messages
from nodeagent.controlplane.storage.etcd.messages import Header, RangeReply, StatusReply, TxnReply
from nodeagent.controlplane.storage.etcd.outcomes import Outcome, outcome_of
from nodeagent.controlplane.storage.etcd.rpc import CallFailed, Endpoint, Member, apart

logger = logging.getLogger(__name__)
CALL_SECONDS: Final = 1.5
"""How long one member is waited for: a follower answers for a leader that died only after 7 s."""
READ_SECONDS: Final = 6.0
"""How long reads are tried on one member after the other; the election of a leader takes up to 2 s."""
_PAUSE_SECONDS: Final = 0.05
_KV: Final = "/etcdserverpb.KV/"
_LEASE: Final = "/etcdserverpb.Lease/"
_MAINTENANCE: Final = "/etcdserverpb.Maintenance/"

_Reply = TypeVar("_Reply")


class EtcdFailed(Exception):
    """A call that failed, and what that means."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Client:
    """A cluster, by the addresses of its members. Every method raises EtcdFailed."""

    def __init__(self, endpoints: Sequence[Endpoint], context: ssl.SSLContext | None = None) -> None:
        self._members = [Member(endpoint, context) for endpoint in endpoints]
        self._preferred = random.randrange(len(self._members))  # noqa: S311 - so that not all servers ask the same member
        self._on_move: list[Callable[[], None]] = []
        self.answered_at = float("-inf")
        """When a call that needs a leader was last answered, in seconds of `time.monotonic`."""

    @property
    def member(self) -> Member:
        """The one that is asked now."""
        return self._members[self._preferred]

    @property
    def members(self) -> Sequence[Member]:
        """All that were given."""
        return self._members

    def tell_of_moves(self, listener: Callable[[], None]) -> None:
        """`listener` is called whenever another member is asked from now on."""
        self._on_move.append(listener)

    def move_on(self, member: Member) -> None:
        """Asks another one than this, unless that was decided already."""
        if member is self.member and len(self._members) > 1:
            self._preferred = (self._preferred + 1) % len(self._members)
            for listener in self._on_move:
                listener()

    def close(self) -> None:
        """Ends all connections."""
        for member in self._members:
            member.close()

    async def read(self, request: bytes) -> RangeReply:
        """Keys as they are now (linearizable), or at the revision the request names."""
        return await self._repeatedly(f"{_KV}Range", request, messages.read_range)

    async def txn(self, request: bytes) -> TxnReply:
        """Tried once: with Outcome.UNKNOWN it may have been carried out."""
        return await self._once(f"{_KV}Txn", request, messages.read_txn)

    async def compact(self, revision: int) -> Header:
        """Forgets what was superseded at or before a revision; repeated, that does no harm."""
        request = messages.compaction_request(revision)
        return await self._repeatedly(f"{_KV}Compact", request, messages.read_any_header)

    async def grant_lease(self, seconds: int) -> int:
        """The number of a new lease. One that nobody heard of ends by itself."""
        number, _ = await self._repeatedly(f"{_LEASE}LeaseGrant", messages.lease_grant(seconds), messages.read_lease)
        return number

    async def renew_lease(self, number: int) -> bool:
        """Begins the time of a lease anew; False when it has ended."""
        method = f"{_LEASE}LeaseKeepAlive"

        async def renew(member: Member) -> tuple[int, int]:
            async with member.stream(method, {"hasleader": "true"}, CALL_SECONDS) as stream:
                await stream.send(messages.lease_number(number))
                # The stream's answers have the fields of a grant's.
                return messages.read_lease(await stream.receive())

        _, seconds = await self._with_each(lambda member: apart(renew(member), CALL_SECONDS))
        return seconds > 0

    async def has_alarm(self) -> bool:
        """A member has run out of space."""
        found = await self._repeatedly(f"{_MAINTENANCE}Alarm", b"", messages.read_alarms)
        return 1 in found

    async def status(self, member: Member) -> StatusReply:
        """Of one member, itself."""
        try:
            return messages.read_status(await member.call(f"{_MAINTENANCE}Status", b"", CALL_SECONDS))
        except CallFailed as failed:
            raise EtcdFailed(outcome_of(failed.code, failed.text), str(failed)) from None

    async def _once(self, method: str, request: bytes, read: Callable[[bytes], _Reply]) -> _Reply:
        member = self.member
        try:
            reply = read(await member.call(method, request, CALL_SECONDS))
        except CallFailed as failed:
            outcome = outcome_of(failed.code, failed.text)
            logger.debug(
                "call failed member=%s method=%s code=%s error=%s", member.endpoint, method, failed.code, failed
            )
            if outcome in (Outcome.NOT_DONE, Outcome.UNKNOWN):
                self.move_on(member)
            raise EtcdFailed(outcome, f"{member.endpoint}: {failed}") from None
        except messages.Malformed as error:
            raise EtcdFailed(Outcome.UNKNOWN, f"{member.endpoint}: {error}") from None
        self.answered_at = time.monotonic()
        return reply

    async def _repeatedly(self, method: str, request: bytes, read: Callable[[bytes], _Reply]) -> _Reply:
        async def ask(member: Member) -> _Reply:
            return read(await member.call(method, request, CALL_SECONDS))

        return await self._with_each(ask)

    async def _with_each(self, ask: Callable[[Member], Awaitable[_Reply]]) -> _Reply:
        """Asks one member after the other until one answers, or the time for reads is up."""
        ends = time.monotonic() + READ_SECONDS
        while True:
            member = self.member
            try:
                reply = await ask(member)
            except (CallFailed, messages.Malformed) as error:
                code = error.code if isinstance(error, CallFailed) else CallFailed.LOST
                outcome = outcome_of(code, str(error))
                logger.debug("read failed member=%s code=%s error=%s", member.endpoint, code, error)
                if outcome not in (Outcome.NOT_DONE, Outcome.UNKNOWN):
                    raise EtcdFailed(outcome, f"{member.endpoint}: {error}") from None
                self.move_on(member)
                if time.monotonic() >= ends:
                    raise EtcdFailed(Outcome.NOT_DONE, f"{member.endpoint}: {str(error) or 'no answer'}") from None
            else:
                self.answered_at = time.monotonic()
                return reply
            await asyncio.sleep(_PAUSE_SECONDS)
