"""The files of a lab, the lock on it, and the removal of what a killed lab left.

A supervisor has a POSIX record lock (fcntl(2)) on `lock` as long as it lives. The kernel releases it when the process
ends, and reports which process has it: there is no pid file, so no other process can be mistaken for it.
"""

import fcntl
import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from nodeagent.lab.holder import Holder
from nodeagent.lab.net.network_namespaces import LabError, our_namespaces, remove_namespace, sweep
from nodeagent.lab.net.strays import end_processes_in

BASE_NAME = "nodeagent-lab"
DEFAULT_BASE = Path("/run") / BASE_NAME
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
LONGEST_SOCKET_PATH = 107  # sun_path is 108 bytes with its final zero, unix(7)
FLOCK = struct.Struct("@hhqqi4x")  # struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid
REAL_NAME_ONLY = "a lab's name has up to 32 of a-z, 0-9 and '-', with no '-' at an end"


def base_directory(environment: Mapping[str, str]) -> Path:
    """Returns the parent of all labs' directories: NODEAGENT_LAB_DIR, else under XDG_RUNTIME_DIR, else under /run."""
    if given := environment.get("NODEAGENT_LAB_DIR"):
        return Path(given).absolute()
    runtime = environment.get("XDG_RUNTIME_DIR")
    return Path(runtime) / BASE_NAME if runtime and Path(runtime).is_dir() else DEFAULT_BASE


class LabDirectory:
    """The files of one lab. Raises ValueError for an invalid name."""

    def __init__(self, base: Path, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r}: {REAL_NAME_ONLY}")
        self.base = base
        self.name = name
        self.path = base / name
        self.socket = self.path / "socket"
        """The socket on which the supervisor answers."""
        self.log = self.path / "supervisor.log"
        """The output of the supervisor itself."""
        self.kubeconfig = self.path / "kubeconfig"
        """The kubeconfig for programs on this machine."""
        self.inner_kubeconfig = self.path / "kubeconfig-inside"
        """The kubeconfig for programs inside the lab."""
        self.resolv_conf = self.path / "resolv.conf"
        """The /etc/resolv.conf of the pods."""
        self.page = self.path / "page"
        """The address of the page, with its token; the file does not exist without a page."""
        self.api_data = self.path / "api"
        """Store and keys of the embedded API server; with several servers, a directory for each."""
        self.etcd = self.path / "etcd"
        """Keys, certificates and data of the members of etcd."""
        self.namespaces = self.path / "namespaces"
        """The names of the lab's namespaces, one per line: a sweep searches them for leftover processes."""
        self._descriptor: int | None = None

    def check(self) -> None:
        """Raises ValueError if its path is too long for a socket."""
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET_PATH:
            raise ValueError(f"{self.socket} is too long for a socket: set NODEAGENT_LAB_DIR to a shorter directory")

    def control_kubeconfig(self, host: str) -> Path:
        """Returns the kubeconfig for programs inside the lab, for the API server of one control-plane host."""
        return self.path / f"kubeconfig-{host}"

    def write_page(self, address: str) -> None:
        """Writes the address of the page; only the lab's owner can read it."""
        descriptor = os.open(self.page, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(address)

    def read_page(self) -> str:
        """Returns the address of the page; empty for a lab without a page."""
        try:
            return self.page.read_text()
        except FileNotFoundError:
            return ""

    def holder(self) -> int | None:
        """Returns the pid of the process that holds the lab now, or None."""
        try:
            with (self.path / "lock").open("rb+") as file:
                answer = fcntl.fcntl(file, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except FileNotFoundError:
            return None
        kind, _, _, _, pid = FLOCK.unpack(answer)
        return None if kind == fcntl.F_UNLCK else int(pid)

    def hold(self) -> None:
        """Creates the directory and holds the lab until this process ends. Raises LabError if another process holds it."""
        while True:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the directory was removed in between
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise LabError(f"lab {self.name} exists already: take it down first, or use another --name") from None
            with suppress(FileNotFoundError):
                if (self.path / "lock").stat().st_ino == os.fstat(descriptor).st_ino:
                    self._descriptor = descriptor
                    return
            os.close(descriptor)  # a lock on a removed file protects nothing

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Deletes all files. The lock file is deleted last, still locked; the base directory is deleted with the last
        lab, if its name is ours."""
        for entry in self.path.iterdir():
            if entry.name == "lock":
                continue
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
        if self.base.name == BASE_NAME:
            with suppress(OSError):
                self.base.rmdir()

    @contextmanager
    def watched_holder(self) -> Iterator[Holder | None]:
        """Yields the process that holds the lab now, to wait for it or end it; None if no process holds it.

        The lock is checked again after a pidfd was opened, so the pidfd can only be the holder's.
        """
        pid = self.holder()
        try:
            process = None if pid is None else os.pidfd_open(pid)
        except ProcessLookupError:
            process = None
        try:
            if pid is None or process is None or self.holder() != pid:
                yield None
            else:
                yield Holder(pid, process, self.name)
        finally:
            if process is not None:
                os.close(process)

    def sweep(self) -> list[str]:
        """Removes what killed supervisors left: processes, namespaces, files. Returns their names.
        Raises LabError if a process holds this lab."""
        found = sweep()
        if not self.path.is_dir():
            return found
        self.hold()
        try:
            with suppress(FileNotFoundError):
                names = self.namespaces.read_text().split()
                end_processes_in(names)
                for name in names:
                    if name in our_namespaces():
                        remove_namespace(name)
                        found.append(name)
            self.remove()
        finally:
            self._release()
        return [*found, str(self.path)]


def labs(base: Path) -> list[str]:
    """Returns the names of the labs that run."""
    if not base.is_dir():
        return []
    names = sorted(entry.name for entry in base.iterdir() if NAME.fullmatch(entry.name))
    return [name for name in names if LabDirectory(base, name).holder() is not None]
