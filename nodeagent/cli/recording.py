"""Reads the recording in a bundle: the wanted tables of a node. A bundle is untrusted and may be a compression bomb, so
reading is bounded."""

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
from nodeagent.wire.unreadable import UNREADABLE

MEMBERS: Final = "nodeagent-bundle"
"""The directory inside the archive."""
RECORDING: Final = "recording.json"
LARGEST_BYTES: Final = 64 << 20
"""Limit of the recording. With 10,000 Services of 10 endpoints each it has 19 MB and a million values."""
MOST_VALUES: Final = 4_000_000
"""Limit of the number of values in the recording; each takes at least some 60 bytes of memory."""
_MOST_UNPACKED: Final = 256 << 20
"""Limit of what is unpacked until the recording is found; it may be the last member of a repacked bundle."""


class NotReplayable(Exception):
    """The file has no usable recording; the message is one line."""


class Recording(msgspec.Struct, frozen=True):
    """The wanted state of a node. program: how its rules were made; None if unknown. names_at: addresses at which it answers names."""

    families: tuple[Family, ...]
    node: NodeState
    states: tuple[ServiceState, ...]
    program: dict[Family, ProgramOptions] | None
    names_at: tuple[str, ...] = ()


def read_members(bundle: Path | IO[bytes], names: Collection[str]) -> dict[str, bytes]:
    """Returns those of the named files that a bundle has, as {name: content}. Raises NotReplayable."""
    try:
        with gzip.open(bundle) as unpacked, tarfile.open(fileobj=_Bounded(unpacked), mode="r|") as archive:
            return dict(_members_in(archive, frozenset(names)))
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise NotReplayable(f"it is not a bundle: {error}") from error


def decode_recording(members: Mapping[str, bytes]) -> Recording:
    """Returns the recording among the files of a bundle. Raises NotReplayable."""
    content = members.get(RECORDING)
    if content is None:
        raise NotReplayable(f"it is not a bundle: there is no {MEMBERS}/{RECORDING} in it")
    if content.count(b",") > MOST_VALUES:
        raise NotReplayable(f"{RECORDING} has more than {MOST_VALUES} values")
    try:
        return msgspec.json.decode(content, type=Recording)
    except UNREADABLE as error:
        raise NotReplayable(f"another version wrote it: {error}") from error


def _members_in(archive: tarfile.TarFile, names: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content); stops as soon as all names are found. Raises NotReplayable."""
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
    """Reads from `source` up to a limit. Raises NotReplayable beyond it."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self._left = _MOST_UNPACKED

    def read(self, size: int = -1) -> bytes:
        """Reads at most `size` bytes."""
        if not 0 <= size <= self._left:
            raise NotReplayable(f"it has more than {_MOST_UNPACKED >> 20} MiB, unpacked")
        found = self._source.read(size)
        self._left -= len(found)
        return found
