"""What is added to etcd's revisions, so that those which clients receive never come again for another change."""

from pathlib import Path

import pytest

from nodeagent.apiserver.storage.etcd.numbering import STEP, Memory, Numbering, Remembered, decide, read_numbering
from nodeagent.apiserver.storage.records import StorageFailed

OLD, NEW = 1 << 63, 7


def seen(cluster: int, highest: int, ahead: int = 0) -> Remembered:
    return Remembered(Numbering(cluster, ahead), highest)


@pytest.mark.parametrize(
    ("revision", "kept", "remembered", "ahead"),
    [
        pytest.param(1, None, None, 0, id="an empty etcd"),
        pytest.param(900, None, None, 0, id="one that kube-apiserver wrote to"),
        pytest.param(900, Numbering(OLD), seen(OLD, 900), 0, id="nothing happened"),
        pytest.param(950, Numbering(OLD), seen(OLD, 900), 0, id="others wrote meanwhile"),
        pytest.param(850, Numbering(OLD), seen(OLD, 900), STEP, id="it went back, and has the same number"),
        pytest.param(850, None, seen(OLD, 900), STEP, id="it went back to before there was a record"),
        pytest.param(850, Numbering(NEW), None, STEP, id="it has another number, and this server is new"),
        pytest.param(950, Numbering(NEW), seen(NEW, 900), STEP, id="it has another number, and is further"),
        pytest.param(950, None, seen(NEW, 900), STEP, id="this server was at another one"),
        pytest.param(850, Numbering(OLD, STEP), seen(OLD, 900), STEP, id="another server has counted on already"),
        pytest.param(
            850, Numbering(OLD, STEP), seen(OLD, STEP + 850, STEP), STEP, id="after a restore nothing happened"
        ),
        pytest.param(840, Numbering(OLD, STEP), seen(OLD, STEP + 850, STEP), 2 * STEP, id="it went back again"),
        pytest.param(850, Numbering(OLD), seen(OLD, STEP + 40, STEP), 2 * STEP, id="the same snapshot once more"),
        pytest.param(850, None, seen(OLD, STEP + 840, STEP), 2 * STEP, id="and one from before there was a record"),
    ],
)
def test_it_is_counted_on_where_a_revision_might_come_again(
    revision: int, kept: Numbering | None, remembered: Remembered | None, ahead: int
) -> None:
    found = decide(OLD, revision, kept, remembered)
    assert found == Numbering(OLD, ahead)
    if remembered is not None:
        assert found.to_client(revision) >= remembered.highest
    assert decide(OLD, revision + 1, found, seen(OLD, found.to_client(revision), ahead)) == found, "once is enough"


def test_a_revision_that_was_told_is_found_again_and_one_from_before_never() -> None:
    numbering = Numbering(OLD, STEP)
    assert numbering.to_etcd(numbering.to_client(850)) == 850
    assert numbering.to_etcd(0) == 0
    assert numbering.to_etcd(850) > 1 << 60
    assert Numbering(OLD).to_etcd(850) == 850


def test_a_server_remembers_what_it_saw(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "etcd.json")
    assert memory.read() is None
    memory.write(seen(OLD, 900))
    memory.write(seen(OLD, 950))
    assert Memory(tmp_path / "etcd.json").read() == seen(OLD, 950)
    (tmp_path / "etcd.json").write_text("{")
    with pytest.raises(StorageFailed, match=r"etcd\.json cannot be read"):
        memory.read()
    assert read_numbering(b"{") is None
