"""Calls to a cluster of several members: uses one of them until it does not answer, then the next."""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from nodeagent.apiserver.storage import records
from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.diagnosis import diagnose
from nodeagent.apiserver.storage.etcd.etcd_messages import Header, RangeReply, StatusReply, TxnReply
from nodeagent.apiserver.storage.etcd.outcomes import Outcome, outcome_of
from nodeagent.apiserver.storage.etcd.rpc import CallFailed, Endpoint, Member, in_own_task
from nodeagent.apiserver.storage.etcd.tls_files import RenewedContext
from nodeagent.wire.protobuf import Malformed

logger = logging.getLogger(__name__)
CALL_SECONDS: Final = 1.5
"""How long to wait for one member: a follower of a leader that died answers only after 7 s."""
READ_SECONDS: Final = 6.0
"""How long reads are retried on one member after the other; the election of a leader takes up to 2 s."""
_PAUSE_SECONDS: Final = 0.05
_KV: Final = "/etcdserverpb.KV/"
_LEASE: Final = "/etcdserverpb.Lease/"
_STATUS: Final = "/etcdserverpb.Maintenance/Status"
_ALARM: Final = "/etcdserverpb.Maintenance/Alarm"
_RIGHTS: Final = (
    "the common name of --etcd-certfile has to be a user of etcd with all rights below --etcd-prefix,"
    " and to read and write compact_rev_key"
)

_Reply = TypeVar("_Reply")


class EtcdFailed(Exception):
    """A failed call, with its outcome."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome

    def as_storage(self) -> Exception:
        """Returns the storage error for this outcome, such as StorageFull or StorageUnreachable."""
        text = f"etcd: {self}"
        if self.outcome is Outcome.DENIED:
            text = f"{text}: {_RIGHTS}"
        match self.outcome:
            case Outcome.FULL:
                return records.StorageFull(text)
            case Outcome.TOO_LARGE:
                return records.ObjectTooLarge(text)
            case Outcome.NOT_DONE | Outcome.ANOTHER:
                return records.StorageUnreachable(text)
            case Outcome.UNKNOWN:
                return records.StorageUncertain(text)
        return records.StorageFailed(text)


OnCall: TypeAlias = Callable[[str, str, float, bool], None]
"""Called after each call to a member with the operation (`get`, `list`, `create`, `update`, `delete`, …), the collection, the
seconds it took, and whether it failed."""


class Client:
    """A client of a cluster, by the addresses of its members. Every method raises EtcdFailed."""

    def __init__(
        self, endpoints: Sequence[Endpoint], context: ssl.SSLContext | None = None, on_call: OnCall | None = None
    ) -> None:
        self._on_call = on_call
        self._context = context
        self._members = [Member(endpoint, context, self._check_cluster) for endpoint in endpoints]
        self._foreign: set[Member] = set()
        self._denied: dict[str, str] = {}
        self.cluster = 0
        """The id of the etcd cluster. Once it is known, members of another cluster are not used."""
        self._preferred = random.randrange(len(self._members))  # noqa: S311 - distributes servers over the members
        self._listeners: list[Callable[[], None]] = []
        self.answered_at = float("-inf")
        """When a call that needs a leader was last answered, in seconds of `time.monotonic`."""

    @property
    def member(self) -> Member:
        """The member that is used now."""
        return self._members[self._preferred]

    @property
    def members(self) -> Sequence[Member]:
        """All configured members."""
        return self._members

    @property
    def denied(self) -> str:
        """The permission that the latest call of its kind lacked; empty if it lacked none."""
        return next(iter(self._denied.values()), "")

    def on_switch(self, listener: Callable[[], None]) -> None:
        """Adds a listener that is called whenever another member is used from now on."""
        self._listeners.append(listener)

    def switch_from(self, member: Member) -> None:
        """Switches from this member to the next, unless that was done already."""
        if member is self.member and len(self._members) > 1:
            self._preferred = (self._preferred + 1) % len(self._members)
            for listener in self._listeners:
                listener()

    async def _check_cluster(self, member: Member) -> None:
        if not self.cluster:
            return
        found = etcd_messages.read_status(await member.call_unchecked(_STATUS, CALL_SECONDS)).header.cluster
        if found == self.cluster:
            self._foreign.discard(member)
            return
        if member not in self._foreign:
            logger.warning("not used, it is a member of another cluster member=%s", member.endpoint)
        self._foreign.add(member)
        raise CallFailed(CallFailed.FOREIGN, "it is a member of another cluster")

    async def is_another(self) -> bool:
        """Returns whether members answer, but none of them belongs to the cluster."""
        answers = await asyncio.gather(*map(self.status, self._members), return_exceptions=True)
        clusters = {answer.header.cluster for answer in answers if isinstance(answer, StatusReply)}
        return bool(clusters) and self.cluster not in clusters

    async def diagnose(self, member: Member) -> str:
        """Returns why a member does not answer, found by another connection to it; empty if that connection works."""
        certificate = self._context.certfile if isinstance(self._context, RenewedContext) else None
        return await diagnose(member.endpoint, self._context, certificate)

    def close(self) -> None:
        """Ends all connections."""
        for member in self._members:
            member.close()

    async def read(self, request: bytes, operation: str = "list") -> RangeReply:
        """Returns keys in their latest state (linearizable), or at the revision that the request names."""
        with self._recording_denial("read"):
            return await self._repeatedly(f"{_KV}Range", request, etcd_messages.read_range, operation)

    async def read_optional(self, request: bytes) -> RangeReply:
        """Like `read`, for keys for which missing permissions are harmless."""
        return await self._repeatedly(f"{_KV}Range", request, etcd_messages.read_range, "get")

    async def txn(self, request: bytes, operation: str = "update", collection: str = "") -> TxnReply:
        """Sends a transaction once: with Outcome.UNKNOWN it may have been carried out."""
        with self._recording_denial("write"):
            return await self._once(f"{_KV}Txn", request, etcd_messages.read_txn, operation, collection)

    async def compact(self, revision: int) -> Header:
        """Compacts the history up to a revision; repeating that is harmless."""
        request = etcd_messages.compaction_request(revision)
        return await self._repeatedly(f"{_KV}Compact", request, etcd_messages.read_any_header, "compact")

    async def grant_lease(self, seconds: int) -> int:
        """Returns the id of a new lease. A lease whose id was lost expires by itself."""
        number, _ = await self._repeatedly(
            f"{_LEASE}LeaseGrant", etcd_messages.lease_grant(seconds), etcd_messages.read_lease, "leaseGrant"
        )
        return number

    async def renew_lease(self, number: int) -> bool:
        """Renews a lease. Returns False if it has expired."""
        method = f"{_LEASE}LeaseKeepAlive"

        async def renew(member: Member) -> tuple[int, int]:
            async with member.stream(method, {"hasleader": "true"}, CALL_SECONDS) as stream:
                await stream.send(etcd_messages.lease_number(number))
                # The replies have the same fields as those of a grant.
                return etcd_messages.read_lease(await stream.receive())

        _, seconds = await self._try_members(lambda member: in_own_task(renew(member), CALL_SECONDS), "leaseKeepAlive")
        return seconds > 0

    async def has_alarm(self) -> bool:
        """Returns whether a member has run out of space."""
        found = await self._repeatedly(_ALARM, b"", etcd_messages.read_alarms, "alarm")
        return 1 in found

    async def status(self, member: Member) -> StatusReply:
        """Returns the status of one member, without a check of its cluster."""
        try:
            return etcd_messages.read_status(await member.call_unchecked(_STATUS, CALL_SECONDS))
        except CallFailed as failed:
            raise EtcdFailed(outcome_of(failed.code, failed.text), str(failed)) from None
        except Malformed as error:
            raise EtcdFailed(Outcome.UNKNOWN, str(error)) from None

    async def statuses(self) -> list[StatusReply | EtcdFailed]:
        """Returns the status of each member, or why it has none. Asks again until one answers or the time for reads is up: a
        member that has just started accepts connections before it has a leader."""
        ends = time.monotonic() + READ_SECONDS
        while True:
            found = await asyncio.gather(*map(self._status_or_failure, self._members))
            if time.monotonic() >= ends or any(isinstance(status, StatusReply) for status in found):
                return found
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _status_or_failure(self, member: Member) -> StatusReply | EtcdFailed:
        try:
            return await self.status(member)
        except EtcdFailed as failed:
            return failed

    async def _once(
        self, method: str, request: bytes, read: Callable[[bytes], _Reply], operation: str, collection: str
    ) -> _Reply:
        member = self.member
        try:
            with self._timed(operation, collection):
                reply = read(await member.call(method, request, CALL_SECONDS))
        except CallFailed as failed:
            outcome = outcome_of(failed.code, failed.text)
            logger.debug(
                "call failed member=%s method=%s code=%s error=%s", member.endpoint, method, failed.code, failed
            )
            if outcome in (Outcome.NOT_DONE, Outcome.UNKNOWN):
                self.switch_from(member)
                outcome = self._another_if_all_foreign(outcome)
            raise EtcdFailed(outcome, f"{member.endpoint}: {failed}") from None
        except Malformed as error:
            raise EtcdFailed(Outcome.UNKNOWN, f"{member.endpoint}: {error}") from None
        self.answered_at = time.monotonic()
        return reply

    async def _repeatedly(self, method: str, request: bytes, read: Callable[[bytes], _Reply], operation: str) -> _Reply:
        async def ask(member: Member) -> _Reply:
            return read(await member.call(method, request, CALL_SECONDS))

        return await self._try_members(ask, operation)

    def _another_if_all_foreign(self, outcome: Outcome) -> Outcome:
        return Outcome.ANOTHER if len(self._foreign) == len(self._members) else outcome

    @contextmanager
    def _recording_denial(self, to: str) -> Iterator[None]:
        try:
            yield
        except EtcdFailed as failed:
            if failed.outcome is Outcome.DENIED:
                self._denied[to] = f"{failed}: {_RIGHTS}"
            raise
        self._denied.pop(to, None)

    @contextmanager
    def _timed(self, operation: str, collection: str = "") -> Iterator[None]:
        began, failed = time.monotonic(), True
        try:
            yield
            failed = False
        finally:
            if self._on_call is not None:
                self._on_call(operation, collection, time.monotonic() - began, failed)

    async def _try_members(self, ask: Callable[[Member], Awaitable[_Reply]], operation: str) -> _Reply:
        """Calls one member after the other until one answers, or the time for reads is up."""
        ends = time.monotonic() + READ_SECONDS
        while True:
            member = self.member
            try:
                with self._timed(operation):
                    reply = await ask(member)
            except (CallFailed, Malformed) as error:
                code = error.code if isinstance(error, CallFailed) else CallFailed.LOST
                outcome = outcome_of(code, str(error))
                logger.debug("read failed member=%s code=%s error=%s", member.endpoint, code, error)
                if outcome not in (Outcome.NOT_DONE, Outcome.UNKNOWN):
                    raise EtcdFailed(outcome, f"{member.endpoint}: {error}") from None
                self.switch_from(member)
                final = self._another_if_all_foreign(Outcome.NOT_DONE)
                if final is Outcome.ANOTHER or time.monotonic() >= ends:
                    raise EtcdFailed(final, f"{member.endpoint}: {str(error) or 'no answer'}") from None
            else:
                self.answered_at = time.monotonic()
                return reply
            await asyncio.sleep(_PAUSE_SECONDS)
