"""A Debian machine in a container: systemd as PID 1, and a namespace of a world as its network.

Everything it writes is in memory, in a mount namespace that ends with it, unless it has a disk; it is killed when the thread that booted it
ends, with all its processes. What is left then are empty control groups, which carry our process id and are removed by the next machine.
"""

import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from nodeagent.lab.net.network_namespaces import is_alive

CONTROL_GROUPS = tuple(Path("/sys/fs/cgroup", part) for part in ("", "unified", "systemd"))
GROUP = re.compile(r"nodeagent-boot-(?P<pid>[0-9]+)-[0-9a-f]+")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_SECONDS = 120.0
PATIENCE_SECONDS = 60.0
"""Emulated machines run at the same time."""
LAST_LINES = 60

ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
"""The machine's process 1 outlives systemd-nspawn when that is killed, but not the process namespace around both."""
BOOT = """
tree=$1 place=$2 group=$3 namespace=$4 disk=$5
shift 5
for groups in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
    [ -e $groups/cgroup.procs ] || continue
    mkdir $groups/$group
    echo $$ > $groups/$group/cgroup.procs
done
mount -t tmpfs -o mode=755 tmpfs $place
disk=${disk:-$place}
mkdir -p $disk/changes $disk/work $place/root
mount -t overlay -o lowerdir=$tree,upperdir=$disk/changes,workdir=$disk/work overlay $place/root
exec systemd-nspawn --boot --directory=$place/root --network-namespace-path=$namespace "$@"
"""


class MachineFailed(Exception):
    """A command in the machine failed, or the machine did not do in time what it should."""


class Machine:
    """Boots `tree` (which stays as it is) with the network of the namespace at `network`.

    place: an empty directory. binds: directory out here → where the machine sees it. disk: a directory that keeps what it writes,
    for a machine that boots from it again.
    """

    def __init__(
        self, tree: Path, place: Path, network: Path, *, binds: Mapping[Path, str], disk: Path | None = None
    ) -> None:
        sweep()
        self._console = place.with_name(f"{place.name}.log")
        self._group = f"nodeagent-boot-{os.getpid()}-{secrets.token_hex(3)}"
        options = [
            "--register=no",
            "--keep-unit",
            "--console=read-only",
            "--machine=node-a",
            "--resolv-conf=off",
            "--timezone=off",
            # Given with --private-network, but not with a namespace by path:
            "--capability=CAP_NET_ADMIN",
            *(f"--bind={outside}:{inside}" for outside, inside in binds.items()),
        ]
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                [*ALONE, "sh", "-ec", BOOT, "sh", *map(str, (tree, place, self._group, network, disk or "")), *options],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={"PATH": PATH, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"},
                start_new_session=True,
            )
        self._init = ""

    def __enter__(self) -> Self:
        try:
            self.wait_until(lambda: bool(self._find_init()), "a process 1", seconds=BOOT_SECONDS)
            self.wait_until(self._has_booted, "the end of booting", seconds=BOOT_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def root(self) -> Path:
        """The machine's files, as seen from out here."""
        return Path(f"/proc/{self._init}/root")

    def run(self, *argv: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command in the machine, as root, to its end. Raises MachineFailed when it fails, unless `check` is off."""
        command = ["nsenter", "--target", self._init, "--all", "--", "env", "-i", f"PATH={PATH}", "LC_ALL=C.UTF-8"]
        result = subprocess.run(
            [*command, "SYSTEMD_COLORS=0", *argv], input=stdin, capture_output=True, text=True, check=False, timeout=120
        )
        if check and result.returncode:
            raise MachineFailed(f"{' '.join(argv)} ended with {result.returncode}: {result.stdout}{result.stderr}")
        return result

    def systemctl(self, *arguments: str) -> str:
        """What `systemctl` prints. Raises MachineFailed, with what the machine's services said last."""
        try:
            return self.run("systemctl", *arguments).stdout
        except MachineFailed as error:
            said = self.run("journalctl", "--no-pager", "--output=short-precise", f"--lines={LAST_LINES}", check=False)
            raise MachineFailed(f"{error}\n{said.stdout}") from None

    def show(self, unit: str, property_name: str) -> str:
        """A property of a unit, as `systemctl show` has it."""
        return self.systemctl("show", "--value", "--property", property_name, unit).strip()

    def journal(self, unit: str) -> list[str]:
        """The messages of a unit and about it, oldest first."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout.splitlines()

    def write(self, path: str, text: str) -> None:
        """A file of root's that all may read, with the directories above it."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def wait_until(self, condition: Callable[[], bool], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Return when the condition holds. Raises MachineFailed when it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise MachineFailed(f"the machine did not show {what} within {seconds} s:\n{self._last_words()}")
            time.sleep(0.02)

    def wait_for_line(self, unit: str, pattern: str, *, after: int = 0, seconds: float = PATIENCE_SECONDS) -> str:
        """The first message of a unit, from number `after` on, in which the regular expression is found."""
        found: list[str] = []

        def look() -> bool:
            found.extend(line for line in self.journal(unit)[after:] if re.search(pattern, line))
            return bool(found)

        try:
            self.wait_until(look, f"a line with {pattern!r}", seconds=seconds)
        except MachineFailed as error:
            raise MachineFailed("\n".join([str(error), *self.journal(unit)[after:]])) from None
        return found[0]

    def power_off(self, *, seconds: float) -> None:
        """Shut it down in order. Raises MachineFailed when it has not ended in time."""
        self.run("systemctl", "poweroff")
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise MachineFailed(f"the machine did not end within {seconds} s:\n{self._last_words()}") from None

    def close(self) -> None:
        """Switch it off, the hard way."""
        self._process.kill()
        self._process.wait()
        remove_group(self._group)

    def _find_init(self) -> str:
        """unshare has one child, systemd-nspawn; its child becomes the machine's process 1."""
        for nspawn in _children(str(self._process.pid)):
            for child in _children(nspawn):
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                    if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                        self._init = child
        return self._init

    def _has_booted(self) -> bool:
        return self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded")

    def _last_words(self) -> str:
        return "\n".join(self._console.read_text(errors="replace").splitlines()[-30:])


def _children(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []


def remove_group(name: str) -> None:
    """Remove a machine's control groups, as soon as its processes have gone."""
    deadline = time.monotonic() + 5
    for top in {groups / name for groups in CONTROL_GROUPS}:
        while top.exists() and time.monotonic() < deadline:
            for path in (*sorted(_below(top), reverse=True), top):
                try:
                    path.rmdir()
                except OSError:  # a process is still on its way out
                    time.sleep(0.01)


def _below(top: Path) -> Iterator[Path]:
    return (Path(directory) for directory, _, _ in os.walk(top) if Path(directory) != top)


def sweep() -> None:
    """Remove the control groups of machines whose test run is gone."""
    for groups in CONTROL_GROUPS:
        for path in groups.glob("nodeagent-boot-*"):
            found = GROUP.fullmatch(path.name)
            if found and not is_alive(int(found["pid"])):
                remove_group(path.name)
