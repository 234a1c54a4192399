"""The demo tells its story and ends cleanly whatever happens."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.net.network_namespaces import is_alive, our_namespaces

ROOT = Path(__file__).parents[2]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A scratch directory whose name leaves room for that of a socket: 108 bytes hold both (unix(7))."""
    with TemporaryDirectory(prefix="demo-") as directory:
        yield Path(directory)


class Running:
    """A demo with its files in a directory of its own, so that others may run at the same time."""

    def __init__(self, scratch: Path, *arguments: str, path: str = "") -> None:
        self._scratch = scratch
        environment = os.environ | {"COLUMNS": "160", "PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nodeagent", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment | ({"PATH": path} if path else {}),
        )
        self._supervisors: set[int] = set()

    def read_until(self, words: str) -> str:
        """What it prints up to and with the line that has these words."""
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            self._supervisors |= {pid for home in self._homes() if (pid := LabDirectory(home, "demo").holder())}
            if words in line:
                return text
        pytest.fail(f"no {words!r} in {text}: {self.finish()[1]}")

    def finish(self) -> tuple[str, str]:
        """The rest of what it prints, on both streams."""
        with self.process:
            return self.process.communicate(timeout=120)

    def _homes(self) -> list[Path]:
        return list(self._scratch.glob("nodeagent-demo-*"))

    def leftovers(self) -> list[str]:
        """Namespaces of its lab, files, the lab's process."""
        assert self._supervisors
        prefixes = tuple(f"nodeagent-lab-{pid}-" for pid in self._supervisors)
        namespaces = [name for name in our_namespaces() if name.startswith(prefixes)]
        alive = [str(pid) for pid in self._supervisors if is_alive(pid)]
        return [*namespaces, *alive, *map(str, self._homes())]


def test_the_demo_shows_every_way_and_loses_no_connection(short_path: Path) -> None:
    demo = Running(short_path)
    output = demo.read_until("registered")
    rest, errors = demo.finish()
    output += rest

    assert (demo.process.returncode, errors) == (0, ""), output
    assert "service/shop created" in output
    assert "12 endpoints of default/shop are programmed on every node" in output
    counted = [line.split() for line in output.splitlines() if "█" in line]
    assert [name for name, *_ in counted] == [f"echo-{node}-{pod}" for node in (1, 2, 3) for pod in (1, 2)]
    assert sum(int(count) for _, count, _ in counted) == 16 * 60
    assert "960 connections, none failed; answers by pod:" in output
    for who in ("a pod", "a node", "outside"):
        assert f"{who} (" in output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if line.endswith("none failed")}
    assert list(rows) == ["rollover", "kill"]
    failed, attempts = zip(*(map(int, row[-11:-9]) for row in rows.values()), strict=True)
    assert failed == (0, 0)
    assert "6 pods replaced" in output
    held, of, opened = rows["kill"][-5:-2]
    assert (held, of) == (opened, "of")
    assert "everything is removed" in output
    assert f"{960 + sum(attempts)} connections in both families, 0 failed" in output
    assert demo.leftovers() == []


def test_without_kubectl_the_demo_says_so_and_uses_the_api(short_path: Path) -> None:
    for program in ("ip", "nft", "setpriv", "openssl"):
        found = shutil.which(program)
        assert found is not None
        (short_path / program).symlink_to(found)
    demo = Running(short_path, path=str(short_path))
    printed = demo.read_until("kubectl")
    assert "no kubectl on this machine: created through the API instead" in printed
    demo.read_until("service/shop created")
    demo.process.send_signal(signal.SIGINT)
    demo.finish()
    assert demo.leftovers() == []


def test_an_agent_that_does_not_start_is_shown_with_its_message(short_path: Path) -> None:
    demo = Running(short_path, "--agent-option=--no-such")
    demo.read_until("network namespaces")
    _, errors = demo.finish()

    assert demo.process.returncode == 1
    assert demo.leftovers() == []
    assert errors.startswith("demo: ")
    assert "No such option '--no-such'" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        pytest.param(signal.SIGINT, "network namespaces", id="Ctrl-C while it is built"),
        pytest.param(signal.SIGTERM, "registered", id="terminated while it is built"),
        pytest.param(signal.SIGHUP, "all 6 pods are replaced", id="hung up while the pods are replaced"),
    ],
)
def test_an_interrupted_demo_leaves_nothing(short_path: Path, number: signal.Signals, moment: str) -> None:
    demo = Running(short_path)
    demo.read_until(moment)
    demo.process.send_signal(number)
    _, errors = demo.finish()

    assert demo.process.returncode == 128 + number
    assert "interrupted, everything removed" in errors
    assert demo.leftovers() == []


def test_without_root_the_demo_says_so_in_one_line() -> None:
    program = "import os; from nodeagent.lab.demo import main; os.setuid(65534); raise SystemExit(main([]))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert result.returncode == 1
    assert result.stderr == "demo: it makes network namespaces: run it as root\n"
