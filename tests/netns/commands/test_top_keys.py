"""`nodeagent top` on a terminal: keys are typed there, and what it shows follows."""

import os
import pty
import re
import select
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGINT

import pytest

from nodeagent.lab.net.fork_server import Fork
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.conftest import Node, one_node

PATIENCE = 90.0
LINES, COLUMNS = 40, 120
CLEAR = "\x1b[2J\x1b[1;1H"


@pytest.fixture(scope="module")
def programmed(network_namespaces: None, warm_launcher: WarmLauncher) -> Iterator[Node]:
    """A node with the services of docs/examples."""
    with one_node(warm_launcher) as node:
        node.program_examples("--table-ownership=plain")
        yield node


class Terminal:
    """A pseudo-terminal with `nodeagent top` on it; what it shows is what was written since it was cleared last."""

    def __init__(self, launcher: WarmLauncher, node: Node, *arguments: str) -> None:
        self.ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self.ours, (LINES, COLUMNS))
        self.before = termios.tcgetattr(self._theirs)
        self._written = ""
        self.process: Fork = launcher.on_terminal(node.name, ("top", *arguments), self._theirs)

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def until(self, pattern: str) -> list[str]:
        """The lines of the first screen on which this is found."""
        deadline = time.monotonic() + PATIENCE
        while True:
            screen = re.sub(r"\x1b\[[0-9;]*m", "", self._written.rpartition(CLEAR)[2])
            if re.search(pattern, screen):
                return screen.splitlines()
            assert time.monotonic() < deadline, f"{pattern} not in {self._written[-2000:]!r}"
            if select.select([self.ours], [], [], 1.0)[0]:
                self._written += os.read(self.ours, 65536).decode()

    def mode(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self._theirs)


@contextmanager
def top(launcher: WarmLauncher, node: Node, *arguments: str) -> Iterator[Terminal]:
    terminal = Terminal(launcher, node, *arguments)
    try:
        yield terminal
    finally:
        terminal.close()


def services(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines[1:] if "/" in line.split("   ")[0]]


def test_keys_sort_reverse_filter_and_quit(programmed: Node, warm_launcher: WarmLauncher) -> None:
    with top(warm_launcher, programmed, "--every", "0.2", "--sort", "name") as terminal:
        lines = terminal.until(r"by name   \? keys")
        all_of_them = services(terminal.until(r"([1-9]\d*) of \1 +by name"))
        assert lines[0].split() == ["SERVICE", "CONN/S", "COUNTED", "RECENT"]
        assert len(all_of_them) >= 3
        assert all_of_them == sorted(all_of_them)

        terminal.type("r")
        assert services(terminal.until(r"by name, reversed   \? keys")) == all_of_them[::-1]

        terminal.type("/WEB")
        found = services(terminal.until("filter: WEB_   Enter"))
        assert found == [one for one in all_of_them[::-1] if "web" in one]
        assert 0 < len(found) < len(all_of_them)
        terminal.type("\r")
        terminal.until(f"{len(found)} of {len(all_of_them)}   by name, reversed   filter: WEB")
        terminal.type("\x1b")
        terminal.until(f"{len(all_of_them)} of {len(all_of_them)} +by name, reversed   [?]")

        terminal.type("s?")
        lines = terminal.until("by rate, reversed.*\n.*q quit")
        assert len(services(lines)) == len(all_of_them)

        assert terminal.mode() != terminal.before, "keys would need Enter"
        terminal.type("q")
        assert terminal.process.wait(PATIENCE) == 0
        assert terminal.mode() == terminal.before


def test_connections_change_what_stands_first(programmed: Node, warm_launcher: WarmLauncher) -> None:
    with top(warm_launcher, programmed, "--every", "0.2", "--sort", "total") as terminal:
        terminal.until(r"([1-9]\d*) of \1 +by total")
        programmed.run("timeout", "1", "bash", "-c", "echo > /dev/tcp/10.96.0.10/80")
        terminal.until(r"RECENT *\r?\ndefault/web:http +[0-9.]+ +[1-9]")


def test_ctrl_c_ends_it_and_the_terminal_is_as_it_was(programmed: Node, warm_launcher: WarmLauncher) -> None:
    with top(warm_launcher, programmed, "--every", "600") as terminal:
        terminal.until(r"0 of 0   by rate")
        os.kill(terminal.process.pid, SIGINT)
        assert terminal.process.wait(PATIENCE) == 130
        assert terminal.mode() == terminal.before
