"""Finds the admin socket of a network namespace.

The first agent of a machine has the configured path. An agent in another network namespace (a lab's node) finds that in use
and takes a path next to it, with the number of its namespace; commands look there first.
"""

import fcntl
import logging
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nodeagent.model.runtime_files import AGENT_SOCKET

DEFAULT_SOCKET = Path(AGENT_SOCKET)
LOCK_SECONDS: Final = 0.5
_LOOK_AGAIN_SECONDS: Final = 0.005
_NAMESPACE = Path("/proc/self/ns/net")

logger = logging.getLogger(__name__)


def network_namespace() -> int:
    """Returns the number of the network namespace of this process."""
    return _NAMESPACE.stat().st_ino


def namespaced_path(path: Path) -> Path:
    """Returns the path for this network namespace if another agent has `path`."""
    return path.with_name(f"{path.stem}-{network_namespace()}{path.suffix}")


def is_answered(path: Path) -> bool:
    """Returns whether a process listens there. Raises OSError if that cannot be found out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(1.0)
        try:
            caller.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except TimeoutError:
            return True  # its backlog is full
    return True


def listener_namespace(path: Path) -> int | None:
    """Returns the number of the network namespace of the process that listens there, even if it hangs; None if that cannot be
    found out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(1.0)
        try:
            caller.connect(str(path))
            pid, _, _ = struct.unpack("iII", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return Path(f"/proc/{pid}/ns/net").stat().st_ino
        except OSError:
            return None


def sweep(path: Path) -> list[Path]:
    """Removes the sockets next to `path` that killed agents of other network namespaces left; returns the removed ones. Keeps those
    whose state is unclear."""
    removed: list[Path] = []
    try:
        found = list(path.parent.glob(f"{path.stem}-*{path.suffix}"))
    except OSError:
        return removed
    for left in found:
        if not left.stem.removeprefix(f"{path.stem}-").isdigit():
            continue
        try:
            if is_answered(left):
                continue
            with _locked(path.parent):
                if not is_answered(left):
                    left.unlink()
                    removed.append(left)
        except OSError:
            continue
    return removed


def listen_at(path: Path, *, mode: int, group: int | None) -> socket.socket:
    """Returns a socket that listens at `path` with this mode and group; replaces the socket of a dead process.

    No process can connect before the mode is set: the socket is created under another name. Raises OSError; FileExistsError if a
    process has the path.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _locked(path.parent):
        if is_answered(path):
            raise FileExistsError(f"{path} is another agent's")
        return _listen(path, mode, group)


def _listen(path: Path, mode: int, group: int | None) -> socket.socket:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(new))
        if group is not None:
            os.chown(new, -1, group)
        new.chmod(mode)
        listener.listen()
        new.rename(path)
    except BaseException:
        listener.close()
        new.unlink(missing_ok=True)
        raise
    return listener


def remove_own(path: Path, inode: int | None) -> None:
    """Removes the socket with this inode; does nothing if another agent has put its own there, or if it cannot be removed."""
    try:
        with _locked(path.parent):
            if inode is not None and path.stat().st_ino == inode:
                path.unlink()
    except OSError as error:
        logger.debug("admin socket %s: %s", path, error)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Prevents that another agent replaces or removes a socket in the directory between a look at it and what follows.

    Any process that may read the directory can hold its lock. So after LOCK_SECONDS the block runs without it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ends = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < ends:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOOK_AGAIN_SECONDS)
        yield
    finally:
        os.close(descriptor)
