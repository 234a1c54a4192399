"""Programs whose outputs a bundle holds: they run at the same time, and a bad one costs only its own output."""

import os
import sys
import time
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


def test_a_part_of_this_program_runs_in_a_fork() -> None:
    def work() -> None:
        os.write(1, f"here {os.getppid()}\n".encode())

    def fail() -> None:
        os.write(2, b"no permission\n")
        sys.exit(3)

    with Programs() as programs:
        programs.fork("own", work)
        programs.fork("error", fail)
        assert dict(programs.outputs()) == {
            "own.txt": f"here {os.getpid()}\n".encode(),
            "error.txt": b"no permission\n",
        }


@pytest.mark.parametrize("forked", [False, True], ids=["another program", "a fork"])
def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: bool) -> None:
    monkeypatch.setattr(bundled_commands, "SECONDS", 0.0)
    place = tmp_path / "number"
    hang = "import os, sys, time\nopen(sys.argv[1], 'w').write(f'{os.getpid()} ')\ntime.sleep(60)"

    def work() -> None:
        place.write_text(f"{os.getpid()} ")
        time.sleep(60)

    with Programs() as programs:
        if forked:
            programs.fork("slow", work)
        else:
            programs.start("slow", (*python(hang), str(place)))
        end = time.monotonic() + 60
        while not (place.exists() and place.read_text().endswith(" ")):
            assert time.monotonic() < end
            time.sleep(0.01)
        found = dict(programs.outputs())
    assert list(found) == ["slow.error.txt"]
    assert b"timed out" in found["slow.error.txt"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)


def test_a_long_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled_commands, "LARGEST_BYTES", 10)
    with Programs() as programs:
        programs.start("long", python("print('x' * 100_000)"))
        assert dict(programs.outputs()) == {"long.txt": b"x" * 10 + b"\n... cut off here\n"}
