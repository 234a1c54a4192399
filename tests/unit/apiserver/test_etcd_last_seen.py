"""Whether an etcd continues what this server's clients have seen of it, or went back."""

from pathlib import Path

import pytest

from nodeagent.apiserver.storage.etcd.last_seen import LastSeen, LastSeenFile
from nodeagent.apiserver.storage.records import StorageFailed

OURS, OTHER = 1 << 63, 7
BUMPED = 1_000_000_850


@pytest.mark.parametrize(
    ("cluster", "revision", "continues"),
    [
        pytest.param(OURS, 900, True, id="nothing happened"),
        pytest.param(OURS, 950, True, id="others wrote meanwhile"),
        pytest.param(OURS, 850, False, id="it went back, and has the same number"),
        pytest.param(OTHER, 850, False, id="it went back, and has another number"),
        pytest.param(
            OTHER, 950, False, id="it has another number, and is not far beyond what a server may have missed"
        ),
        pytest.param(OURS, BUMPED, True, id="its revision was raised at the restore"),
        pytest.param(OTHER, BUMPED, True, id="its revision was raised, and it has another number"),
    ],
)
def test_an_etcd_continues_what_was_seen_only_where_no_revision_comes_again(
    tmp_path: Path, cluster: int, revision: int, continues: bool
) -> None:
    seen = LastSeen(OURS, 900)
    assert seen.is_continued_by(cluster, revision) is continues
    file = LastSeenFile(tmp_path / "seen.json")
    file.check(None, cluster, revision)
    if continues:
        file.check(seen, cluster, revision)
        return
    with pytest.raises(StorageFailed, match=f"is at revision {revision}, clients .* 900.*--bump-revision") as refused:
        file.check(seen, cluster, revision)
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "seen.json") in str(refused.value)


def test_a_server_remembers_what_it_saw(tmp_path: Path) -> None:
    file = LastSeenFile(tmp_path / "seen.json")
    assert file.read() is None
    file.write(LastSeen(OURS, 900))
    file.write(LastSeen(OURS, 950))
    assert LastSeenFile(tmp_path / "seen.json").read() == LastSeen(OURS, 950)
    (tmp_path / "seen.json").write_text("{")
    with pytest.raises(StorageFailed, match=r"seen\.json cannot be read"):
        file.read()
