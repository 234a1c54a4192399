"""Servers that start together agree on the authority of the first, and say nothing of it; one that had another says so."""

import asyncio
from pathlib import Path

import pytest

from nodeagent.apiserver.api.shared_credentials import SharedCredentials
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.store import Store

WARNING = "another certificate authority"


def make(directory: Path) -> None:
    """What a server makes where it finds nothing, all of it naming the directory."""
    directory.mkdir()
    for name in ("ca.crt", "ca.key", "sa.key", "tokens.csv", "server.names"):
        (directory / name).write_text(directory.name)


@pytest.mark.parametrize("before", [False, True], ids=["new", "in use before"])
def test_the_one_that_was_slower_takes_the_other_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: bool
) -> None:
    async def scenario() -> None:
        async with Store(Log(":memory:"), clock=lambda: 0.0) as store:
            faster, slower = (SharedCredentials(store, tmp_path / name) for name in ("faster", "slower"))
            if before:
                make(tmp_path / "slower")
            assert [await faster.fetch(), await slower.fetch()] == [False, False]
            make(tmp_path / "faster")
            if not before:
                make(tmp_path / "slower")
            assert [await faster.offer(), await slower.offer(), await slower.fetch()] == [True, False, True]

    asyncio.run(scenario())
    assert (tmp_path / "slower" / "ca.crt").read_text() == "faster"
    assert not (tmp_path / "slower" / "server.names").exists()
    assert (WARNING in caplog.text) == before


ADMIN = 'z-token,admin,admin,"system:masters"'
AGENT = 'b-token,agent,agent,"nodeagent:agents"'
READER = 'm-token,reader,reader,"nodeagent:readers"'


@pytest.mark.parametrize(
    ("users_here", "users_then"),
    [
        pytest.param([ADMIN, AGENT], [ADMIN, AGENT], id="the same"),
        pytest.param([AGENT, ADMIN], [AGENT, ADMIN], id="the same in another order"),
        pytest.param([AGENT], [AGENT, ADMIN], id="one that is missing comes last"),
        pytest.param([READER, AGENT], [READER, AGENT, ADMIN], id="and one of its own"),
        pytest.param([], [ADMIN, AGENT], id="none"),
    ],
)
def test_the_lines_of_the_file_of_users_stay_where_they_are(
    tmp_path: Path, users_here: list[str], users_then: list[str]
) -> None:
    """A program that provisions a machine compares the file with the one it brings, and restarts the server where they differ."""

    def write(directory: Path, users: list[str]) -> Path:
        make(directory)
        path = directory / "tokens.csv"
        path.write_text("".join(f"{line}\n" for line in users))
        return path

    async def scenario() -> None:
        async with Store(Log(":memory:"), clock=lambda: 0.0) as store:
            first, second = (SharedCredentials(store, tmp_path / name) for name in ("first", "second"))
            theirs, ours = write(tmp_path / "first", [ADMIN, AGENT]), write(tmp_path / "second", users_here)
            assert [await first.fetch(), await first.offer(), await second.fetch()] == [False, True, True]
            for _ in range(2):
                await second.sync_users()
                await first.sync_users()
                assert ours.read_text().splitlines() == users_then
                added = [line for line in users_here if line not in (ADMIN, AGENT)]
                assert theirs.read_text().splitlines() == [ADMIN, AGENT, *added]

    asyncio.run(scenario())
