"""Servers that start together agree on the authority of the first, and say nothing of it; one that had another says so."""

import asyncio
from pathlib import Path

import pytest

from nodeagent.controlplane.api.shared_credentials import SharedCredentials
from nodeagent.controlplane.storage.log import Log
from nodeagent.controlplane.storage.store import Store

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
