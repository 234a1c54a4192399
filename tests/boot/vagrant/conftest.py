"""The cluster of the project's own Vagrantfile, unchanged, in a sandbox, with a box that was made here."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .sandbox import Sandbox

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / ".tools" / "boot" / "vagrant"
PROJECT = ROOT / "vagrant"
BOX = "debian/bookworm64"
SECONDS = 3600.0
"""Minutes on an idle machine, but these machines are emulated, and others may want the processors too."""

ROW = re.compile(r"(?P<name>\S.*?) +(?P<result>pass|FAIL) +(?P<seconds>\d+) s  (?P<seen>.*)")


@dataclass(frozen=True)
class Row:
    """A line of the table that verify.sh prints."""

    result: str
    seen: str


@dataclass
class Cluster:
    """What commands in vagrant/ act upon."""

    sandbox: Sandbox
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """Vagrant's files of the project."""
        return self.sandbox.directory / "project"

    def vagrant(self, *arguments: str, **settings: str) -> str:
        """What a command of Vagrant's prints. Raises SandboxFailed."""
        return self._run("vagrant", *arguments, **settings)

    def on(self, machine: str, command: str) -> str:
        """What a command prints that root runs on a machine. Raises SandboxFailed."""
        return self.vagrant("ssh", machine, "--no-tty", "-c", f"sudo sh -c '{command}'")

    def verify(self, **settings: str) -> dict[str, Row]:
        """The table of verify.sh, by what is checked. Raises SandboxFailed when it says that something failed."""
        printed = self._run(str(PROJECT / "verify.sh"), **settings)
        print(printed)
        rows = [found for line in printed.splitlines() if (found := ROW.fullmatch(line))]
        return {row["name"]: Row(row["result"], row["seen"]) for row in rows}

    def _run(self, *argv: str, **settings: str) -> str:
        env = self.settings | settings
        return self.sandbox.run(*argv, env=env, directory=PROJECT, seconds=SECONDS).stdout


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Up, with `control` and two workers. `make test-boot` builds the box and the package."""
    (package,) = (ROOT / "build" / "boot").glob("nodeagent_*-1~deb12_*.deb")
    with Sandbox(IMAGES) as sandbox:
        settings = {
            "VAGRANT_HOME": str(sandbox.directory / "vagrant"),
            "VAGRANT_DOTFILE_PATH": str(sandbox.directory / "project"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "NODEAGENT_DEB": str(package),
        }
        sandbox.run("vagrant", "box", "add", "--name", BOX, str(IMAGES / "bookworm.box"), env=settings)
        cluster = Cluster(sandbox, settings)
        cluster.vagrant("up", "--provider=libvirt", "--no-color")
        yield cluster
