"""Named network namespaces of ours: ``nodeagent-lab-<creator's pid>-<world>-<member>`` under /run/netns.

The pid in the name lets a later run remove what a killed one left. No function here changes any other name.
"""

import ctypes
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from nodeagent.model.runtime_files import files_left_by

DIRECTORY = Path("/run/netns")
NAME = re.compile(r"nodeagent-lab-(?P<pid>[0-9]+)-(?P<world>[0-9a-f]+)-(?P<member>[A-Za-z0-9-]+)")
BR_NETFILTER = Path("/proc/sys/net/bridge")
"""Exists if br_netfilter is loaded or built in."""
CLONE_NEWNET = 0x40000000
MNT_DETACH = 2

T = TypeVar("T")


class LabError(Exception):
    """The world cannot be built or used as asked; the text says what and, if it helps, what a command printed."""


def namespace_name(pid: int, world: str, member: str) -> str:
    """Returns the name of one member's namespace; `world` is hexadecimal."""
    return f"nodeagent-lab-{pid}-{world}-{member}"


def check_ours(name: str) -> None:
    """Raises LabError if `name` does not have the form above."""
    if not NAME.fullmatch(name):
        raise LabError(f"{name!r} is not a namespace of the lab")


def create_namespaces(names: Iterable[str]) -> None:
    """Creates and names them. Raises LabError (not root, name in use)."""
    names = list(names)
    for name in names:
        check_ours(name)
    run_ip([], [f"netns add {name}" for name in names])


def run_ip(options: Sequence[str], lines: Sequence[str]) -> None:
    """Runs `ip` commands in one process. At the first that fails, raises LabError with the command and the reason."""
    result = subprocess.run(
        ["ip", *options, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False
    )
    if result.returncode:
        found = re.search(r"Command failed -:(\d+)", result.stderr)
        command = lines[int(found[1]) - 1] if found else ""
        raise LabError(f"ip {' '.join(options)} {command}: {result.stderr.strip()}")


def remove_namespace(name: str) -> None:
    """Removes the name, and the files that agents in it may have left; the namespace ends with its last process. Does
    nothing if the name does not exist."""
    check_ours(name)
    path = DIRECTORY / name
    with suppress(OSError):
        for left in files_left_by(path.stat().st_ino):
            Path(left).unlink(missing_ok=True)
    ctypes.CDLL(None).umount2(os.fsencode(path), MNT_DETACH)
    with suppress(FileNotFoundError):
        path.unlink()


def our_namespaces() -> list[str]:
    """Returns the names of all lab namespaces on this machine, of any creator."""
    if not DIRECTORY.is_dir():
        return []
    return sorted(entry.name for entry in DIRECTORY.iterdir() if NAME.fullmatch(entry.name))


def sweep() -> list[str]:
    """Removes the namespaces whose creator is no longer alive; returns their names."""
    creators = {name: int(m["pid"]) for name in our_namespaces() if (m := NAME.fullmatch(name))}
    alive = set(filter(is_alive, set(creators.values())))
    dead = [name for name, creator in creators.items() if creator not in alive]
    for name in dead:
        remove_namespace(name)
    return dead


def is_alive(pid: int) -> bool:
    """Returns whether a process has this pid and is not a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(b") ")[2][:1] not in (b"Z", b"X")


def enter(name: str) -> None:
    """Moves the calling *thread* into the namespace. Raises LabError."""
    check_ours(name)
    library = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise LabError(f"namespace {name} does not exist") from None
    try:
        if library.setns(descriptor, CLONE_NEWNET):
            raise LabError(f"setns {name}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


def inside(name: str | None, function: Callable[[], T]) -> T:
    """Calls `function` in the namespace (None: the caller's), in another thread, and returns or raises what it does."""
    values: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            if name is not None:
                enter(name)
            values.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)

    thread = threading.Thread(target=work, name=f"inside {name}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return values[0]


def has_br_netfilter() -> bool:
    """Returns whether bridged packets can pass the rules of IP; tries to load the kernel module."""
    if not BR_NETFILTER.exists():
        with suppress(FileNotFoundError):
            subprocess.run(["modprobe", "br_netfilter"], capture_output=True, check=False)
    return BR_NETFILTER.exists()


def write_sysctls(name: str, values: Mapping[str, str]) -> None:
    """Sets sysctls of the namespace (paths under /proc/sys, which show the namespace of the reading thread)."""

    def write() -> None:
        for path, value in values.items():
            (Path("/proc/sys") / path).write_text(value)

    inside(name, write)
