"""A bundle from a stranger: what is read of it, and what it costs."""

import gzip
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.cli.recording import RECORDING, NotReplayable, Recording, decode_recording, read_members

GOOD = b'{"families":["IPv4"],"node":{},"states":[],"program":null}'
PEAK_MB = 400
SCRIPT = r"""
import re, sys
from pathlib import Path
from nodeagent.cli.recording import RECORDING, NotReplayable, decode_recording, read_members
try:
    decode_recording(read_members(Path(sys.argv[1]), {RECORDING}))
except NotReplayable as error:
    print(error)
# Not ru_maxrss, which begins with what the parent had when it forked.
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def read_bundle(path: Path) -> Recording:
    return decode_recording(read_members(path, {RECORDING}))


def bundle(path: Path, **members: bytes) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"nodeagent-bundle/{name}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_the_recording_is_found_wherever_it_is(tmp_path: Path) -> None:
    path = bundle(tmp_path / "report.tar.gz", about=b"{}", objects=b"x" * 2**20, recording=GOOD)
    assert read_bundle(path).states == ()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (lambda: {"about": b"{}"}, "no nodeagent-bundle/recording.json"),
        (lambda: {"recording": b"{}"}, "another version wrote it"),
        (lambda: {"recording": b" " * 65 * 2**20 + GOOD}, "more than 64 MiB"),
        (lambda: {"recording": b"[" + b'"ab",' * 4_000_001 + b"0]"}, "more than 4000000 values"),
    ],
    ids=["none", "another version", "too long", "too many values"],
)
def test_invalid_recordings_are_refused(tmp_path: Path, members: Callable[[], dict[str, bytes]], said: str) -> None:
    """Made here and not as parameters: every process that collects this test would hold 85 MB of them."""
    with pytest.raises(NotReplayable, match=said):
        read_bundle(bundle(tmp_path / "report.tar.gz", **members()))


@pytest.mark.parametrize(
    "content",
    [b"", b"not an archive", gzip.compress(b"not a tar file" * 100, mtime=0)[:-9]],
    ids=["empty", "text", "cut short"],
)
def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_bytes(content)
    with pytest.raises(NotReplayable, match="not a bundle"):
        read_bundle(path)


@pytest.mark.parametrize("kind", ["recording", "before it", "header"])
def test_a_small_file_that_stands_for_a_gigabyte_costs_little(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "report.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        member = tarfile.TarInfo(f"nodeagent-bundle/{'recording' if kind == 'recording' else 'about'}.json")
        member.size = 2**30
        if kind == "header":
            member = tarfile.TarInfo("././@PaxHeader")
            member.type, member.size = tarfile.XHDTYPE, 2**30
        packed.write(member.tobuf())
        for _ in range(300):
            packed.write(b" " * 2**20)
    assert path.stat().st_size < 3 * 2**20
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=True)
    said, peak = done.stdout.splitlines()
    assert "MiB" in said
    assert int(peak) < PEAK_MB
