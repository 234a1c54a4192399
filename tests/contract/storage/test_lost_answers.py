"""Writes whose answer is lost: what cannot be proven is reported as unknown, and nothing is carried out twice."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.apiserver.storage.etcd.cluster_client import Client, EtcdFailed
from nodeagent.apiserver.storage.etcd.etcd_messages import TxnReply
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.outcomes import Outcome
from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
from nodeagent.apiserver.storage.records import Change, Precondition, Record, StorageUncertain, draft
from nodeagent.apiserver.storage.store import Store
from tests.harness.etcd import needs_etcd, running

pytestmark = needs_etcd
Send = Callable[[], Awaitable[TxnReply]]
Loss = Callable[[Send], Awaitable[Outcome]]


class LossyClient(Client):
    """Loses the answers of its next transactions, each in its own way. A loss decides whether etcd gets the request."""

    losses: list[Loss]
    sent: int
    before_renewal: Callable[[], Awaitable[object]] | None = None

    async def renew_lease(self, number: int) -> bool:
        if self.before_renewal is not None:
            await self.before_renewal()
        return await super().renew_lease(number)

    async def txn(self, request: bytes, operation: str = "update", collection: str = "") -> TxnReply:
        self.sent += 1
        if not self.losses:
            return await super().txn(request, operation, collection)
        outcome = await self.losses.pop(0)(lambda: super(LossyClient, self).txn(request, operation, collection))
        raise EtcdFailed(outcome, "no answer")


async def lose_request(_: Send) -> Outcome:
    return Outcome.UNKNOWN


async def lose_answer(send: Send) -> Outcome:
    await send()
    return Outcome.UNKNOWN


async def refuse_for_space(_: Send) -> Outcome:
    return Outcome.FULL


def meanwhile(work: Callable[[], Awaitable[object]]) -> Loss:
    """The request is lost, and somebody else writes."""

    async def loss(_: Send) -> Outcome:
        await work()
        return Outcome.UNKNOWN

    return loss


class Bench:
    """Two servers on one etcd; what `mine` sends may be lost."""

    def __init__(self, mine: Store, other: Store, client: LossyClient) -> None:
        self.mine = mine
        self.other = other
        self._client = client

    async def lose(self, *losses: Loss) -> None:
        await self.mine.latest()
        self._client.losses = list(losses)
        self._client.sent = 0

    def before_renewal(self, work: Callable[[], Awaitable[object]]) -> None:
        self._client.before_renewal = work

    @property
    def sent(self) -> int:
        return self._client.sent

    async def found(self, name: str = "counter") -> Record | None:
        await self.other.latest()
        return self.other.get("things", name)


def put(expected: int | None, value: int, name: str = "counter") -> list[Change]:
    body = draft({"metadata": {"name": name, "resourceVersion": "0"}, "value": value})
    return [Change("things", name, expected, body)]


def gone(expected: int | None, name: str = "counter") -> list[Change]:
    return [Change("things", name, expected, None)]


def played(tmp_path: Path, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def play() -> None:
        with running(tmp_path) as cluster:
            endpoints = [Endpoint(*one) for one in cluster.endpoints]
            client = LossyClient(endpoints)
            client.losses, client.sent = [], 0
            layout = Layout("/registry", {})
            mine = Store(EtcdStorage(client, layout, clock=lambda: 0.0), clock=lambda: 0.0)
            other = Store(EtcdStorage(Client(endpoints), layout, clock=lambda: 0.0), clock=lambda: 0.0)
            async with mine, other, asyncio.timeout(120):
                await scenario(Bench(mine, other, client))

    asyncio.run(play())


def test_one_change_is_acknowledged_to_one_client_although_another_wrote_the_same(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        (first,) = await bench.other.commit(put(0, 1))
        await bench.lose(meanwhile(lambda: bench.other.commit(put(first.revision, 2))))
        with pytest.raises(StorageUncertain):
            await bench.mine.commit(put(first.revision, 2))
        (second,) = await bench.other.commit(put(0, 1, "removed"))
        await bench.lose(meanwhile(lambda: bench.other.commit(gone(second.revision, "removed"))))
        with pytest.raises(StorageUncertain):
            await bench.mine.commit(gone(second.revision, "removed"))

    played(tmp_path, scenario)


def test_a_write_that_was_carried_out_is_never_reported_as_a_conflict_with_itself(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        (first,) = await bench.other.commit(put(0, 1))
        await bench.lose(lose_answer)
        with pytest.raises(StorageUncertain):
            await bench.mine.commit(put(first.revision, 2))
        found = await bench.found()
        assert found is not None
        assert found.document()["value"] == 2

    played(tmp_path, scenario)


def test_another_value_at_that_place_proves_a_conflict(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        (first,) = await bench.other.commit(put(0, 1))
        await bench.lose(meanwhile(lambda: bench.other.commit(put(first.revision, 3))))
        with pytest.raises(Precondition):
            await bench.mine.commit(put(first.revision, 2))

    played(tmp_path, scenario)


def test_a_write_that_can_take_effect_only_once_is_sent_again(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        (first,) = await bench.other.commit(put(0, 1))
        await bench.lose(lose_request, lose_request)
        (second, _) = await bench.mine.commit([*put(first.revision, 2), *put(0, 1, "beside")])
        assert bench.sent == 3
        found = await bench.found()
        assert found is not None
        assert (found.revision, found.document()["value"]) == (second.revision, 2)

    played(tmp_path, scenario)


@pytest.mark.parametrize("expected", [0, None])
def test_a_write_that_could_take_effect_twice_is_sent_once(tmp_path: Path, expected: int | None) -> None:
    """A create that is delayed in a member could come after a second one, and after that one's deletion."""

    async def scenario(bench: Bench) -> None:
        await bench.lose(lose_request)
        with pytest.raises(StorageUncertain):
            await bench.mine.commit(put(expected, 1))
        assert bench.sent == 1
        assert await bench.found() is None

    played(tmp_path, scenario)


def test_a_later_refusal_says_nothing_of_what_was_sent_before(tmp_path: Path) -> None:
    """Nor that a second object is in the way, which may go before the first request arrives."""

    async def scenario(bench: Bench) -> None:
        (first,) = await bench.other.commit(put(0, 1))
        await bench.lose(lose_request, refuse_for_space)
        with pytest.raises(StorageUncertain):
            await bench.mine.commit(put(first.revision, 2))
        await bench.lose(meanwhile(lambda: bench.other.commit(put(0, 1, "beside"))))
        with pytest.raises(StorageUncertain):
            await bench.mine.commit([*put(first.revision, 2), *put(0, 1, "beside")])

    played(tmp_path, scenario)


def test_an_object_deleted_while_its_lease_is_renewed_is_written_again(tmp_path: Path) -> None:
    """A lease outlives its object."""

    async def scenario(bench: Bench) -> None:
        (change,) = put(None, 1)
        kept = [replace(change, seconds=60.0)]
        (first,) = await bench.mine.commit(kept)
        await bench.other.latest()
        bench.before_renewal(lambda: bench.other.commit(gone(first.revision)))
        (second,) = await bench.mine.commit(kept)
        assert second.revision > first.revision
        assert await bench.found() is not None

    played(tmp_path, scenario)
