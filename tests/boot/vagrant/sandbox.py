"""A place of its own for libvirt and Vagrant: network, processes and directories of a machine that has nothing else.

Its first process is killed when the thread that made the place ends, and everything in it with that: libvirtd, the
virtual machines, dnsmasq, the bridges. So nothing of it can outlive the tests but files, which the next one removes.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from nodeagent.lab.net.network_namespaces import is_alive

RUN = re.compile(r"run-(?P<pid>[0-9]+)-[0-9a-f]+")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_SECONDS = 120.0
LAST_LINES = 60

ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork")
BEGIN = """
umount --recursive /sys
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
if [ -e /dev/kvm ]; then mount --bind /dev/null /dev/kvm; fi
cp -r /etc/libvirt/. $1/etc
cat > $1/etc/qemu.conf <<QEMU
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = [ ]
namespaces = [ ]
remember_owner = 0
stdio_handler = "file"
QEMU
for place in etc/libvirt var/lib/libvirt var/cache var/log; do
    mount --bind $1/$(basename $place) /$place
done
mkdir -p /var/log/libvirt/qemu
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
virtlogd &
touch $1/closed
libvirtd &
wait
"""
"""Argument: a directory with etc, libvirt, cache and log. Only file names that libvirt insists on get something else
behind them, and only in here: the machine's own configuration, and a libvirtd that runs on it, notice nothing.

Whatever machines are to run with, libvirt asks each QEMU what it can do with /dev/kvm; where that is nested, and opens but
crawls, the question takes ten seconds, and it is asked for each machine. Nothing answers at /dev/null.
"""


class SandboxFailed(Exception):
    """A command in the sandbox failed; the text has the end of what it said."""


class Sandbox:
    """Made below `parent`, on entering; gone with everything in it on leaving."""

    def __init__(self, parent: Path) -> None:
        sweep(parent)
        self.directory = parent / f"run-{os.getpid()}-{secrets.token_hex(3)}"
        for name in ("etc", "libvirt", "cache", "log", "home", "vagrant"):
            (self.directory / name).mkdir(parents=True)
        with (self.directory / "libvirtd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*ALONE, "--kill-child", "bash", "-ec", BEGIN, "bash", str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        self.first = ""

    def __enter__(self) -> Self:
        try:
            self._wait_for_libvirt()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        directory: Path = Path("/"),
        seconds: float = 600.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """A command in here, to its end; both of its outputs as one. Raises SandboxFailed."""
        enter = ["nsenter", f"--target={self.first}", "--mount", "--net", "--pid", f"--wd={directory}", "--"]
        settings = {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": str(self.directory / "home"), **(env or {})}
        try:
            result = subprocess.run(
                [*enter, *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
                timeout=seconds,
                env=settings,
            )
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
            raise SandboxFailed(f"{' '.join(argv)} took more than {seconds} s:\n{_end(said)}") from None
        if check and result.returncode:
            raise SandboxFailed(f"{' '.join(argv)} ended with {result.returncode}:\n{_end(result.stdout)}")
        return result

    def close(self) -> None:
        """Kill everything in here, and remove its files."""
        # The end of a namespace's first process is that of all others; then unshare ends as well.
        if self.first and self._process.poll() is None:
            os.kill(int(self.first), signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_for_libvirt(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SandboxFailed(f"libvirtd does not answer:\n{self._libvirt_said()}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.first = children.read_text().strip() if children.exists() else ""
        if not self.first or not (self.directory / "closed").exists():
            return False  # what is asked now might be the machine's own libvirtd
        return not self.run("virsh", "-c", "qemu:///system", "version", check=False).returncode

    def _libvirt_said(self) -> str:
        return _end((self.directory / "libvirtd.log").read_text(errors="replace"))


def _end(text: str) -> str:
    return "\n".join(text.splitlines()[-LAST_LINES:])


def sweep(parent: Path) -> None:
    """Remove the files of sandboxes whose test run is gone."""
    for path in parent.glob("run-*"):
        found = RUN.fullmatch(path.name)
        if found and not is_alive(int(found["pid"])):
            shutil.rmtree(path, ignore_errors=True)
