"""Reads the manifest files of a directory, and only those that changed. Every call blocks; call it in a thread.

Read are ``*.yaml``, ``*.yml`` and ``*.json`` in the directory and in its direct subdirectories, also through symbolic
links. Hidden names are skipped, files and directories: editors' temporary files, and the ``..data`` machinery by which
a ConfigMap mount swaps all its files at once (the visible names are links into it).
"""

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.model.problem import Problem
from nodeagent.proxy.source.manifests.manifest_world import ManifestFile, World, merge, next_version
from nodeagent.proxy.source.manifests.manifests import Manifest, ManifestFault, parse_manifest
from nodeagent.runtime.bounded_file import read_whole

SUFFIXES = (".yaml", ".yml", ".json")
SETTLING_NS = 1_000_000_000
MOST_READINGS = 3
"""Of a directory that changes while it is read; whatever changes it is noticed, and it is read again later."""
LARGEST_BYTES = 64 << 20
"""The limit of one file; 10,000 Services with 10 endpoints each are 20 MB."""

logger = logging.getLogger(__name__)

DirectoryIdentity = tuple[str, int, int]


class Reading(Struct, frozen=True):
    """The present content of the directory. `world` is the same object as before if no file changed.

    places: the directories that were read: path, device and inode, so a replaced directory is another one.
    problems: those of the directories themselves; those of files are in the world.
    """

    world: World
    places: frozenset[DirectoryIdentity] = frozenset()
    problems: tuple[Problem, ...] = ()


class _Known(Struct, frozen=True):
    """A file as last read. `settled`: its time stamp is old enough for the next change to have another one."""

    version: ManifestFile
    identity: tuple[int, ...] = ()
    digest: bytes = b""
    settled: bool = False


class _Listing(Struct):
    """Files by name relative to the root, the directories seen, when those were changed last, and those that could not be listed."""

    files: dict[str, Path] = {}
    places: set[DirectoryIdentity] = set()
    changed_ns: dict[Path, int] = {}
    unreadable: dict[str, OSError] = {}


class ManifestDirectory:
    """Reads a directory repeatedly, each time only what changed.

    now_ns: the wall clock that file time stamps are compared to. thorough: see `parse_manifest`.
    """

    def __init__(
        self, root: Path, node_name: str, *, now_ns: Callable[[], int] = time.time_ns, thorough: bool = False
    ) -> None:
        self._root = root
        self._node_name = node_name
        self._now_ns = now_ns
        self._thorough = thorough
        self._known: dict[str, _Known] = {}
        self._world = World()

    def read(self) -> Reading:
        """Returns the present content; if the directory changes meanwhile, what it is afterwards. Raises OSError if it cannot be listed at
        all; what was read before is kept."""
        known = self._known
        for _ in range(MOST_READINGS):
            listing, latest = self._read_files(known)
            if _still_the_same(listing):
                break
            known = known | latest
        if _versions(latest) != _versions(self._known):
            self._world = merge(_versions(latest).values(), self._node_name)
        self._known = latest
        return Reading(self._world, frozenset(listing.places), tuple(_unreadable(self._root, listing)))

    @property
    def files(self) -> list[ManifestFile]:
        """The files as last read, in the order of paths."""
        return [file.version for _, file in sorted(self._known.items())]

    def _read_files(self, known: dict[str, _Known]) -> tuple[_Listing, dict[str, _Known]]:
        """Returns what is listed, and its files: of directories that cannot be listed the known ones."""
        listing = _Listing()
        _list_into(listing, self._root, "")
        latest = {name: file for name, file in known.items() if name.partition("/")[0] in listing.unreadable}
        for name, path in listing.files.items():
            file = self._read_file(name, path, known.get(name))
            if file is not None:
                latest[name] = file
        return listing, latest

    def _read_file(self, name: str, path: Path, known: _Known | None) -> _Known | None:
        """Returns the present file: the known one if it did not change, None if it was just deleted."""
        try:
            status = path.stat()
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            settled = self._now_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLING_NS
            if known is not None and known.settled and known.identity == identity:
                return known
            if not stat.S_ISREG(status.st_mode):
                return _rejected(name, known, "not a regular file")
            data = read_whole(path, LARGEST_BYTES)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not path.is_symlink():
                return None
            return _rejected(name, known, error.strerror or str(error))
        digest = blake2b(data, digest_size=16).digest()
        if known is not None and known.digest == digest:
            return replace(known, identity=identity, settled=settled)
        version = _parse(name, known, data, thorough=self._thorough)
        return _Known(version, identity, digest, settled)


def _versions(files: dict[str, _Known]) -> dict[str, ManifestFile]:
    return {name: file.version for name, file in files.items()}


def _list_into(listing: _Listing, directory: Path, prefix: str) -> None:
    """Adds the entries of `directory` to the listing. Raises OSError if it cannot be listed."""
    status = directory.stat()
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith("."):
                continue
            if _is_directory(entry):
                if not prefix:
                    _list_subdirectory(listing, Path(entry.path), name)
            elif entry.name.endswith(SUFFIXES):
                listing.files[name] = Path(entry.path)
    listing.places.add((str(directory), status.st_dev, status.st_ino))
    listing.changed_ns[directory] = status.st_mtime_ns


def _still_the_same(listing: _Listing) -> bool:
    """Returns whether no file came, went or was renamed since, of which one may have been read and another one missed."""
    with suppress(OSError):
        return all(directory.stat().st_mtime_ns == before for directory, before in listing.changed_ns.items())
    return False


def _list_subdirectory(listing: _Listing, directory: Path, name: str) -> None:
    try:
        _list_into(listing, directory, name + "/")
    except FileNotFoundError:
        return
    except OSError as error:
        listing.unreadable[name] = error


def _is_directory(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir()
    return False


def _parse(name: str, known: _Known | None, data: bytes, *, thorough: bool) -> ManifestFile:
    before = known.version if known is not None else None
    if not data and before is not None and before.manifest.objects:
        # `kubectl get ... > svc.yaml` leaves the file empty for as long as the command runs.
        detail = "the file is empty, maybe still being written; delete it to delete its objects"
        return next_version(name, before, Manifest(faults=(ManifestFault(0, "EmptyFile", detail),)))
    try:
        manifest = parse_manifest(name, data, thorough=thorough)
    except Exception as error:
        logger.exception("manifest cannot be read file=%s", name)
        detail = f"internal error: {type(error).__name__}: {error}"
        manifest = Manifest(faults=(ManifestFault(0, "InvalidManifest", detail),))
    if manifest.ignored:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in manifest.ignored)
        logger.debug("manifest kinds not read file=%s kinds=%s", name, kinds)
    return next_version(name, before, manifest)


def _rejected(name: str, known: _Known | None, reason: str) -> _Known:
    """Returns a file that cannot be read; the next reading tries again."""
    before = known.version if known is not None else None
    return _Known(next_version(name, before, Manifest(faults=(ManifestFault(0, "UnreadableFile", reason),))))


def _unreadable(root: Path, listing: _Listing) -> Iterator[Problem]:
    for name in sorted(listing.unreadable):
        yield unreadable_directory(root / name, listing.unreadable[name])


def unreadable_directory(path: Path, error: OSError) -> Problem:
    """Returns the problem of a directory that could be read before."""
    reason = error.strerror or str(error)
    return Problem(f"directory {path}", "UnreadableDirectory", f"{reason}; what was read last stays in effect")
