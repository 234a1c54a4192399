"""Programs whose outputs a bundle holds: they run at the same time, and a bad one costs only its own output."""

import sys
from pathlib import Path

import pytest

from nodeagent.cli import bundled_commands
from nodeagent.cli.bundled_commands import Programs


def python(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


def test_outputs_of_one_name_are_in_order_and_a_bad_program_says_why() -> None:
    with Programs() as programs:
        programs.start("two", python("print('first')"), python("print('second')"))
        programs.start("none", ("/nonexistent/program",))
        programs.start("error", python("raise SystemExit('no permission')"))
        found = dict(programs.outputs())
    assert found == {
        "two.txt": b"first\nsecond\n",
        "none.error.txt": b"[Errno 2] No such file or directory: '/nonexistent/program'",
        "error.txt": b"no permission\n",
    }


def test_programs_run_at_the_same_time(tmp_path: Path) -> None:
    """Each of the two waits for the other."""
    meet = (
        "import sys, time\nfrom pathlib import Path\nmine, other = map(Path, sys.argv[1:])\nmine.touch()\n"
        "while not other.exists(): time.sleep(0.01)\nprint('met')"
    )
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    with Programs() as programs:
        programs.start("one", (*python(meet), one, other))
        programs.start("other", (*python(meet), other, one))
        assert dict(programs.outputs()) == {"one.txt": b"met\n", "other.txt": b"met\n"}


def test_a_program_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled_commands, "SECONDS", 0.0)
    with Programs() as programs:
        programs.start("slow", python("import time; time.sleep(60)"))
        found = dict(programs.outputs())
        (process,) = (one._process for those in programs._running.values() for one in those)
    assert list(found) == ["slow.error.txt"]
    assert b"timed out" in found["slow.error.txt"]
    assert process.returncode == -9


def test_a_long_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled_commands, "LARGEST_BYTES", 10)
    with Programs() as programs:
        programs.start("long", python("print('x' * 100_000)"))
        assert dict(programs.outputs()) == {"long.txt": b"x" * 10 + b"\n... cut off here\n"}
