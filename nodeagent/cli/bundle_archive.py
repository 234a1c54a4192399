"""Opens the bundle of one node: a file, or a member of an archive of all nodes."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from nodeagent.cli.recording import NotReplayable
from nodeagent.model.text import did_you_mean

ALL_MEMBERS: Final = "nodeagent-bundles"
"""The directory inside an archive of all nodes."""
SUFFIX: Final = ".tar.gz"
LARGEST_BYTES: Final = 64 << 20
"""Limit of one node's bundle in such an archive."""
NAMED = 10
_GZIP = b"\x1f\x8b"


@contextmanager
def open_bundle(path: Path, node: str | None) -> Iterator[IO[bytes]]:
    """Opens a bundle. node: whose, in an archive of all nodes; None for a file of one node. Raises NotReplayable."""
    try:
        with path.open("rb") as file:
            single = file.read(2) == _GZIP
            file.seek(0)
            if single and node is not None:
                raise NotReplayable("it is the bundle of one node: leave out --node")
            yield file if single else _member(file, node)
    except OSError as error:
        raise NotReplayable(f"it is not a bundle: {error.strerror or error}") from error


def _member(file: IO[bytes], node: str | None) -> IO[bytes]:
    """Returns the bundle of a node in an archive. Raises NotReplayable."""
    names: list[str] = []
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                name = member.name.removeprefix(f"{ALL_MEMBERS}/").removesuffix(SUFFIX)
                if f"{ALL_MEMBERS}/{name}{SUFFIX}" != member.name or not member.isfile():
                    continue
                names.append(name)
                content = archive.extractfile(member) if name == node else None
                if content is not None:
                    return io.BytesIO(_bounded(content, name))
    except tarfile.TarError as error:
        raise NotReplayable(f"it is not a bundle: {error}") from error
    if not names:
        raise NotReplayable("it is not a bundle: it has no bundle of a node")
    listed = f"{', '.join(sorted(names)[:NAMED])}{', …' if len(names) > NAMED else ''}"
    if node is None:
        raise NotReplayable(f"it holds bundles of {listed}: name one with --node, before the file")
    raise NotReplayable(f"it has no bundle of {node}{did_you_mean(node, names)}; it holds {listed}")


def _bounded(content: IO[bytes], name: str) -> bytes:
    found = content.read(LARGEST_BYTES + 1)
    if len(found) > LARGEST_BYTES:
        raise NotReplayable(f"the bundle of {name} has more than {LARGEST_BYTES >> 20} MiB")
    return found
