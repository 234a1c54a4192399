"""What a bundle says of a node's tables. A bundle may come from anybody, and a megabyte of it stand for gigabytes: reading is bounded."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

import msgspec

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.proxy.dataplane.program.chain import ProgramOptions

MEMBERS: Final = "nodeagent-bundle"
"""The directory in the archive."""
RECORDING: Final = "recording.json"
LARGEST_BYTES: Final = 64 << 20
"""Of the recording. One of 10,000 Services with 10 endpoints each has 19 MB and a million values."""
MOST_VALUES: Final = 4_000_000
"""In the recording: each takes some 60 bytes at least."""
_MOST_UNPACKED: Final = 256 << 20
"""Of the archive, up to the recording: a bundle that somebody has packed again may have it last."""


class NotReplayable(Exception):
    """A file that holds no recording; one line for a person."""


class Recording(msgspec.Struct, frozen=True):
    """What an agent wanted of its node. program: None where nobody said how its rules were made."""

    families: tuple[Family, ...]
    node: NodeState
    states: tuple[ServiceState, ...]
    program: dict[Family, ProgramOptions] | None


def read_members(bundle: Path | IO[bytes], names: Collection[str]) -> dict[str, bytes]:
    """What a bundle has of these files, by name. Raises NotReplayable."""
    try:
        with gzip.open(bundle) as unpacked, tarfile.open(fileobj=_Bounded(unpacked), mode="r|") as archive:
            return dict(_members_in(archive, frozenset(names)))
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise NotReplayable(f"it is no bundle: {error}") from error


def recording_of(members: Mapping[str, bytes]) -> Recording:
    """What is to be programmed. Raises NotReplayable."""
    content = members.get(RECORDING)
    if content is None:
        raise NotReplayable(f"it is no bundle: there is no {MEMBERS}/{RECORDING} in it")
    if content.count(b",") > MOST_VALUES:
        raise NotReplayable(f"{RECORDING} has more than {MOST_VALUES} values")
    try:
        return msgspec.json.decode(content, type=Recording)
    except msgspec.MsgspecError as error:
        raise NotReplayable(f"it is of another version: {error}") from error


def read_bundle(path: Path) -> Recording:
    """What is to be programmed. Raises NotReplayable."""
    return recording_of(read_members(path, {RECORDING}))


def _members_in(archive: tarfile.TarFile, names: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Ends once all of them are found. Raises NotReplayable."""
    missing = set(names)
    for member in archive:
        name = member.name.removeprefix(f"{MEMBERS}/")
        file = archive.extractfile(member) if name != member.name and name in missing else None
        if file is None:
            continue
        content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise NotReplayable(f"{name} has more than {LARGEST_BYTES >> 20} MiB")
        yield name, content
        missing.discard(name)
        if not missing:
            return


class _Bounded(io.RawIOBase):
    """What is read of `source`, up to a bound. Raises NotReplayable beyond it."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self._left = _MOST_UNPACKED

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes."""
        if not 0 <= size <= self._left:
            raise NotReplayable(f"it has more than {_MOST_UNPACKED >> 20} MiB, unpacked")
        found = self._source.read(size)
        self._left -= len(found)
        return found
