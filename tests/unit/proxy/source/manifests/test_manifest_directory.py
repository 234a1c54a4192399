"""Manifest files on disk, read again and again."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.proxy.source.manifests.manifest_directory import LARGEST_BYTES, ManifestDirectory, Reading

SECOND_NS = 10**9


def service(name: str) -> str:
    return f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{clusterIP: 10.0.0.1}}}}\n"


BROKEN = "{apiVersion: v1, kind: Service, metadata: {name: [x]}}\n"


def write(path: Path, *contents: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\n".join(contents))


def services(reading: Reading) -> list[str]:
    return sorted(key.name for key in reading.world.services)


def problems(reading: Reading) -> list[tuple[str, str]]:
    return [(problem.subject, problem.reason) for problem in (*reading.problems, *reading.world.problems)]


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("a.yaml", True), ("a.yml", True), ("sub/a.yaml", True), ("with space.yaml", True),
        ("a.txt", False), ("a.yaml~", False), ("a.yaml.swp", False), (".a.yaml.swp", False), (".a.yaml", False),
        ("#a.yaml#", False), (".hidden/a.yaml", False), ("sub/sub/a.yaml", False), ("4913", False),
    ],
)  # fmt: skip
def test_which_files_are_read(tmp_path: Path, name: str, is_read: bool) -> None:
    write(tmp_path / name, service("web"))
    assert services(ManifestDirectory(tmp_path, "node-a").read()) == (["web"] if is_read else [])


def test_json_files_are_read(tmp_path: Path) -> None:
    write(
        tmp_path / "a.json",
        '{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"clusterIP":"None"}}',
    )
    assert services(ManifestDirectory(tmp_path, "node-a").read()) == ["web"]


def test_a_directory_named_like_a_file_is_a_directory(tmp_path: Path) -> None:
    write(tmp_path / "x.yaml" / "a.yaml", service("web"))
    assert services(ManifestDirectory(tmp_path, "node-a").read()) == ["web"]


def test_without_a_change_the_world_is_the_same_object(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", service("web"))
    directory = ManifestDirectory(tmp_path, "node-a")
    world = directory.read().world
    assert directory.read().world is world
    os.utime(tmp_path / "a.yaml", ns=(0, 0))
    assert directory.read().world is world
    write(tmp_path / "a.yaml", "# now with a comment\n", service("web"))
    assert services(directory.read()) == ["web"]


Change = Callable[[Path], None]


def rename_over(root: Path) -> None:
    write(root / ".a.yaml.new", service("new"))
    (root / ".a.yaml.new").rename(root / "a.yaml")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda root: write(root / "a.yaml", service("new")), ["api", "new"], id="write in place"),
        pytest.param(rename_over, ["api", "new"], id="atomic rename"),
        pytest.param(lambda root: (root / "a.yaml").unlink(), ["api"], id="delete"),
        pytest.param(lambda root: (root / "a.yaml").rename(root / "c.yaml"), ["api", "web"], id="move"),
        pytest.param(lambda root: (root / "a.yaml").rename(root / "a.off"), ["api"], id="rename to another suffix"),
        pytest.param(lambda root: write(root / "c.yaml", service("new")), ["api", "new", "web"], id="another file"),
        pytest.param(lambda root: write(root / "s" / "c.yaml", service("new")), ["api", "new", "web"], id="directory"),
        pytest.param(lambda root: write(root / "a.yaml", "# nothing\n"), ["api"], id="only a comment is left"),
    ],
)
def test_a_change_is_seen(tmp_path: Path, change: Change, expected: list[str]) -> None:
    write(tmp_path / "a.yaml", service("web"))
    write(tmp_path / "b.yaml", service("api"))
    directory = ManifestDirectory(tmp_path, "node-a")
    assert services(directory.read()) == ["api", "web"]
    change(tmp_path)
    reading = directory.read()
    assert services(reading) == expected
    assert problems(reading) == []


def test_a_write_within_the_granularity_of_time_stamps_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    write(path, service("web"))
    status = path.stat()
    directory = ManifestDirectory(tmp_path, "node-a", now_ns=lambda: status.st_ctime_ns + SECOND_NS // 2)
    assert services(directory.read()) == ["web"]
    with path.open("r+") as same_inode:
        same_inode.write(service("new"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert services(directory.read()) == ["new"]


class TestLastGood:
    """A file that becomes invalid keeps what it had."""

    def test_broken_and_mended(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        write(path, service("web"), service("api"))
        directory = ManifestDirectory(tmp_path, "node-a")
        directory.read()
        write(path, service("new"), BROKEN)
        reading = directory.read()
        assert services(reading) == ["api", "web"]
        assert problems(reading) == [("file a.yaml:3", "InvalidManifest")]
        write(path, service("new"))
        reading = directory.read()
        assert services(reading) == ["new"]
        assert problems(reading) == []

    def test_broken_at_the_first_reading(self, tmp_path: Path) -> None:
        write(tmp_path / "a.yaml", service("web"), BROKEN)
        write(tmp_path / "b.yaml", service("api"))
        reading = ManifestDirectory(tmp_path, "node-a").read()
        assert services(reading) == ["api", "web"]
        assert problems(reading) == [("file a.yaml:3", "InvalidManifest")]

    def test_emptied_while_a_command_writes_to_it(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        write(path, service("web"))
        directory = ManifestDirectory(tmp_path, "node-a")
        directory.read()
        path.write_bytes(b"")
        reading = directory.read()
        assert services(reading) == ["web"]
        assert problems(reading) == [("file a.yaml", "EmptyFile")]
        write(path, service("new"))
        assert services(directory.read()) == ["new"]

    def test_empty_at_the_first_reading_is_nothing_wrong(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").touch()
        reading = ManifestDirectory(tmp_path, "node-a").read()
        assert (services(reading), problems(reading)) == ([], [])

    def test_link_to_nowhere_and_back(self, tmp_path: Path) -> None:
        link, target = tmp_path / "a.yaml", tmp_path / "target"
        write(target, service("web"))
        link.symlink_to(target)
        directory = ManifestDirectory(tmp_path, "node-a")
        directory.read()
        target.unlink()
        reading = directory.read()
        assert services(reading) == ["web"]
        assert problems(reading) == [("file a.yaml", "UnreadableFile")]
        write(target, service("web"))
        assert problems(directory.read()) == []

    def test_a_file_that_grows_without_end(self, tmp_path: Path) -> None:
        target = tmp_path / "a.yaml"
        write(target, service("web"))
        directory = ManifestDirectory(tmp_path, "node-a")
        assert services(directory.read()) == ["web"]
        os.truncate(target, LARGEST_BYTES + 1)
        reading = directory.read()
        assert services(reading) == ["web"]
        (problem,) = reading.world.problems
        assert (problem.reason, problem.detail) == (
            "UnreadableFile",
            "it has more than 64 MiB; the previous version of the file stays in effect",
        )

    def test_a_path_that_is_not_a_file(self, tmp_path: Path) -> None:
        write(tmp_path / "b.yaml", service("api"))
        os.mkfifo(tmp_path / "a.yaml")
        reading = ManifestDirectory(tmp_path, "node-a").read()
        assert services(reading) == ["api"]
        assert problems(reading) == [("file a.yaml", "UnreadableFile")]


def test_a_config_map_mount_swaps_all_files_at_once(tmp_path: Path) -> None:
    write(tmp_path / "..v1" / "a.yaml", service("web"))
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    directory = ManifestDirectory(tmp_path, "node-a")
    assert services(directory.read()) == ["web"]
    write(tmp_path / "..v2" / "a.yaml", service("new"))
    (tmp_path / "..data_tmp").symlink_to("..v2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert services(directory.read()) == ["new"]


def test_a_missing_directory_raises_and_what_was_read_stays(tmp_path: Path) -> None:
    root = tmp_path / "manifests"
    directory = ManifestDirectory(root, "node-a")
    with pytest.raises(FileNotFoundError):
        directory.read()
    write(root / "a.yaml", service("web"))
    world = directory.read().world
    root.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        directory.read()
    (tmp_path / "away").rename(root)
    assert directory.read().world is world


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", service("web"))
    with pytest.raises(NotADirectoryError):
        ManifestDirectory(tmp_path / "a.yaml", "node-a").read()


def test_places_tell_a_replaced_directory_from_the_old_one(tmp_path: Path) -> None:
    root = tmp_path / "manifests"
    (root / "sub").mkdir(parents=True)
    directory = ManifestDirectory(root, "node-a")
    places = directory.read().places
    assert {path for path, _, _ in places} == {str(root), str(root / "sub")}
    root.rename(tmp_path / "old")
    (root / "sub").mkdir(parents=True)
    assert directory.read().places != places


def while_read(root: Path, change: Callable[[], None]) -> ManifestDirectory:
    """A directory that is changed when the first of its files is read, and that nobody had changed for long."""
    os.utime(root, ns=(0, 0))
    changes = [change]

    def now_ns() -> int:
        if changes:
            changes.pop()()
        return SECOND_NS

    return ManifestDirectory(root, "node-a", now_ns=now_ns)


def test_a_file_that_is_renamed_meanwhile_is_not_missed(tmp_path: Path) -> None:
    for name in ("web", "db"):
        write(tmp_path / f"{name}.yaml", service(name))

    def rename() -> None:
        for name in ("web", "db"):
            (tmp_path / f"{name}.yaml").rename(tmp_path / f"{name}-renamed.yaml")

    assert services(while_read(tmp_path, rename).read()) == ["db", "web"]


def test_of_two_files_that_are_written_meanwhile_both_are_read(tmp_path: Path) -> None:
    write(tmp_path / "last.yaml", service("old"))

    def write_more() -> None:
        write(tmp_path / "first.yaml", service("first"))
        write(tmp_path / "last.yaml", service("new"))

    assert services(while_read(tmp_path, write_more).read()) == ["first", "new"]


def test_a_directory_that_never_rests_is_read_nevertheless(tmp_path: Path) -> None:
    write(tmp_path / "web.yaml", service("web"))
    times = iter(range(0, 1000 * SECOND_NS, SECOND_NS))

    def now_ns() -> int:
        os.utime(tmp_path, ns=(0, next(times)))
        return SECOND_NS

    assert services(ManifestDirectory(tmp_path, "node-a", now_ns=now_ns).read()) == ["web"]
