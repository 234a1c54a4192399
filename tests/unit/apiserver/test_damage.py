"""What is stored and no longer what was written is found, reported by name, and never passed over."""

import asyncio
import contextlib
import logging
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change, HistoryLost, StorageDamaged, draft
from nodeagent.apiserver.storage.sqlite_file import connect, remove_damaged, restore_to
from nodeagent.apiserver.storage.store import Store, Window
from nodeagent.apiserver.storage.write_ahead import LogEnding, examine

THINGS = "things"
HEADER, FRAME = 32, 24 + 4096


def put(name: str, **more: object) -> Change:
    body = draft({"metadata": {"name": name, "resourceVersion": "0"}, **more})
    return Change(THINGS, name, None, body)


def store_at(path: Path, clock: Callable[[], float] = lambda: 1000.0, **window: int) -> Store:
    return Store(Log(str(path)), clock=clock, window=Window(**window))


def written(path: Path, count: int = 10) -> None:
    """A store that ended well."""

    async def scenario() -> None:
        async with store_at(path) as store:
            for number in range(count):
                await store.commit([put(f"n{number}", value="x" * 100)])

    asyncio.run(scenario())


def killed(path: Path, count: int = 10) -> Path:
    """A store as it is found after a kill: with its write-ahead log."""

    async def scenario() -> Path:
        async with store_at(path) as store:
            for number in range(count):
                await store.commit([put(f"n{number}", value="x" * 100)])
            found = path.with_name("killed.db")
            shutil.copy(path, found)
            shutil.copy(f"{path}-wal", f"{found}-wal")
            return found

    return asyncio.run(scenario())


def names_in(path: Path) -> set[str]:
    async def scenario() -> set[str]:
        async with store_at(path) as store:
            return set(store.collection(THINGS).records)

    return asyncio.run(scenario())


def flip(path: Path | str, offset: int, bit: int = 0) -> None:
    data = bytearray(Path(path).read_bytes())
    data[offset] ^= 1 << bit
    Path(path).write_bytes(data)


def test_a_flipped_bit_is_reported_with_its_object(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    written(path)
    flip(path, path.read_bytes().index(b'"name":"n7"') + 40)
    with pytest.raises(StorageDamaged, match=r"1 records are not as they were written: things n7 \(revision 8\)"):
        names_in(path)
    with contextlib.closing(connect(str(path))) as connection:
        assert remove_damaged(connection) == ["things n7 (revision 8)"]
    assert names_in(path) == {f"n{number}" for number in range(10)} - {"n7"}


def test_any_flipped_bit_in_a_store_is_found_or_changes_nothing(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    written(whole, 3)
    size = whole.stat().st_size
    for offset in range(0, size, max(size // 150, 1)):
        path = tmp_path / "s.db"
        for left in tmp_path.glob("s.db*"):
            left.unlink()
        shutil.copy(whole, path)
        flip(path, offset, offset % 8)
        try:
            found = names_in(path)
        except Exception:  # noqa: BLE001 - found, in whichever words
            continue
        assert found == {"n0", "n1", "n2"}, offset


def test_a_log_that_a_kill_left_is_whole(tmp_path: Path) -> None:
    path = killed(tmp_path / "s.db")
    assert examine(f"{path}-wal") is LogEnding.WHOLE
    assert names_in(path) == {f"n{number}" for number in range(10)}


def test_a_restarted_log_is_complete(tmp_path: Path) -> None:
    """The frames of the one before come after it."""

    async def scenario() -> None:
        async with store_at(tmp_path / "s.db") as store:
            for number in range(5):
                await store.commit([put(f"n{number}")])
            with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as other:
                other.execute("PRAGMA wal_checkpoint(RESTART)")
            await store.commit([put("last")])
            assert examine(f"{tmp_path / 's.db'}-wal") is LogEnding.WHOLE

    asyncio.run(scenario())


@pytest.mark.parametrize("frame", [0, 1, 5])
def test_a_log_damaged_before_acknowledged_transactions_ends_the_start(tmp_path: Path, frame: int) -> None:
    path = killed(tmp_path / "s.db")
    flip(f"{path}-wal", HEADER + frame * FRAME + 2000)
    with pytest.raises(StorageDamaged, match="acknowledged transactions follow"):
        names_in(path)


def test_a_log_with_a_damaged_header_ends_the_start(tmp_path: Path) -> None:
    path = killed(tmp_path / "s.db")
    flip(f"{path}-wal", 17)
    with pytest.raises(StorageDamaged):
        names_in(path)


@pytest.mark.parametrize("cut", ["damaged", "short"])
def test_a_log_that_ends_in_a_torn_transaction_is_read_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: str
) -> None:
    path = killed(tmp_path / "s.db")
    log = Path(f"{path}-wal")
    if cut == "damaged":
        flip(log, log.stat().st_size - 100)
    else:
        log.write_bytes(log.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        assert names_in(path) == {f"n{number}" for number in range(9)}
    # Where its end is missing, nothing shows that there was more.
    assert ["ends in an incomplete transaction" in record.getMessage() for record in caplog.records] == (
        [True] if cut == "damaged" else []
    )


def test_a_store_from_before_checksums_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    written(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE revision DROP COLUMN checksum")
    assert len(names_in(path)) == 10
    assert len(names_in(path)) == 10


def test_a_store_to_which_a_later_version_added_columns_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_at(tmp_path / "s.db") as store:
            await store.commit([replace(put("new"), seconds=300.0)])

    path = tmp_path / "s.db"
    written(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE revision ADD COLUMN later TEXT")
        connection.execute("ALTER TABLE lease ADD COLUMN later TEXT")
    asyncio.run(scenario())
    assert "new" in names_in(path)


def test_revisions_after_a_restore_are_higher_than_all_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_at(tmp_path / "s.db") as store:
            await store.commit([put("a")])
            await store.snapshot(str(tmp_path / "copy.db"))
            for number in range(50):
                await store.commit([put(f"n{number}")])
            before = store.revision
        with contextlib.closing(connect(str(tmp_path / "copy.db"))) as copy:
            restore_to(copy, str(tmp_path / "restored.db"))
        async with store_at(tmp_path / "restored.db") as store:
            assert store.floor > before
            (record,) = await store.commit([put("b")])
            assert record.revision > store.floor
            assert set(store.collection(THINGS).records) == {"a", "b"}

    asyncio.run(scenario())


def test_a_server_that_stalled_longer_than_the_history_does_not_write_any_more(tmp_path: Path) -> None:
    """It would bring back what others have deleted meanwhile."""

    async def scenario() -> None:
        now = 1000.0
        async with (
            store_at(tmp_path / "s.db", lambda: now) as stalled,
            store_at(tmp_path / "s.db", lambda: now, seconds=1) as other,
        ):
            (a,) = await stalled.commit([put("a")])
            await other.catch_up()
            await other.commit([Change(THINGS, "a", a.revision, None, a.body)])
            await other.commit([put("b")])
            now += 10
            await other.compact()
            with pytest.raises(HistoryLost):
                await stalled.commit([put("a", value=1)])
            with pytest.raises(HistoryLost):
                await stalled.catch_up()
            assert set(other.collection(THINGS).records) == {"b"}
            await other.catch_up()
            assert set(other.collection(THINGS).records) == {"b"}

    asyncio.run(scenario())


def test_a_snapshot_follows_no_link_and_overwrites_nothing(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    link.symlink_to(victim)
    taken = tmp_path / "taken"
    taken.write_text("mine")

    async def scenario() -> None:
        async with store_at(tmp_path / "s.db") as store:
            await store.commit([put("a")])
            for target in (link, taken):
                with pytest.raises(Exception, match="exists"):
                    await store.snapshot(str(target))

    asyncio.run(scenario())
    assert not victim.exists()
    assert taken.read_text() == "mine"


def test_an_object_that_cannot_be_stored_is_refused_and_the_store_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_at(tmp_path / "s.db") as store:
            with pytest.raises(Exception, match="not found"):
                await store.commit([Change(THINGS, "odd", None, b"{}")])
            async with asyncio.timeout(60):
                await store.commit([put("a")])
                await store.compact()

    asyncio.run(scenario())
