"""Nothing of a lab stays after any end of it; and nothing foreign is taken for a part of it."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.caller import take_down
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.net.network_namespaces import LabError, create_namespaces, is_alive, namespace_name, remove_namespace
from nodeagent.lab.net.strays import end_processes_in

SMALL = ("--nodes", "1", "--pods", "1")


def children_of(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    threads = (Path(f"/proc/{pid}/task") / entry / "children" for entry in os.listdir(f"/proc/{pid}/task"))
    return {int(word) for word in text.split()} | {int(word) for path in threads for word in path.read_text().split()}


def descendants_of(pid: int) -> set[int]:
    children = children_of(pid)
    return children.union(*map(descendants_of, children))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_supervisor_that_is_ended_takes_all_with_it(bench: Any, eventually: Any, number: signal.Signals) -> None:
    bench.do("up", *SMALL)
    supervisor = bench.supervisor()
    programs = descendants_of(supervisor)
    assert len(programs) >= 7, "actors, API server, agent"
    os.kill(supervisor, number)

    eventually(lambda: not bench.namespaces(supervisor))
    eventually(lambda: not any(map(is_alive, {supervisor, *programs})))
    killed = number == signal.SIGKILL
    assert bench.do("down") == ("removed lab lab\n" if killed else "there was no lab lab\n")
    assert list(bench.base.iterdir()) == []


def test_the_next_up_sweeps_what_a_killed_lab_left(bench: Any, eventually: Any) -> None:
    bench.do("up", *SMALL)
    supervisor = bench.supervisor()
    os.kill(supervisor, signal.SIGSTOP)
    for pid in (*descendants_of(supervisor), supervisor):  # the actors too, so that nobody takes the names away
        with suppress(ProcessLookupError):  # they end with one another
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: bench.directory().holder() is None)
    assert bench.namespaces(supervisor)

    bench.do("up", *SMALL)
    assert bench.namespaces(supervisor) == []
    assert bench.supervisor() != supervisor


def test_a_supervisor_that_hangs_is_made_to_end(bench: Any) -> None:
    bench.do("up", *SMALL)
    supervisor = bench.supervisor()
    os.kill(supervisor, signal.SIGSTOP)

    assert take_down(bench.directory(), patience=0.5)
    assert not is_alive(supervisor)
    assert bench.namespaces(supervisor) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param("network namespaces", signal.SIGINT, id="Ctrl-C early"),
        pytest.param("answers", signal.SIGTERM, id="terminated"),
        pytest.param("registered", signal.SIGKILL, id="killed late"),
    ],
)
def test_an_interrupted_up_leaves_nothing(bench: Any, eventually: Any, moment: str, number: signal.Signals) -> None:
    with bench.start("up", *SMALL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if moment in line:
                break
        supervisor = bench.supervisor()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    assert errors == ""
    eventually(lambda: bench.directory().holder() is None)
    assert bench.namespaces(supervisor) == []
    assert list(bench.base.iterdir()) == []


def test_programs_of_exec_end_with_the_lab(bench: Any) -> None:
    bench.do("up", *SMALL)
    strayed = int(bench.do("exec", "node-1", "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"))
    assert is_alive(strayed)
    with bench.start("exec", "node-1", "--", "sh", "-c", "echo here; exec sleep 1000") as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "here\n"
        (program,) = children_of(shell.pid)
        bench.do("down")
        assert shell.wait(60) == 128 + 9
    assert not is_alive(program)
    assert not is_alive(strayed)


def test_only_processes_inside_are_ended() -> None:
    inside = namespace_name(os.getpid(), "e0", "inside")
    create_namespaces([inside])
    try:
        with (
            subprocess.Popen(["ip", "netns", "exec", inside, "sleep", "1000"]) as stray,
            subprocess.Popen(["sleep", "1000"]) as other,
        ):
            deadline = time.monotonic() + 60
            while end_processes_in([inside]) != [stray.pid]:
                assert time.monotonic() < deadline
            assert stray.wait(60) == -9
            assert other.poll() is None
            other.kill()
    finally:
        remove_namespace(inside)
    with pytest.raises(LabError, match="not a namespace of the lab"):
        end_processes_in(["default"])


def test_a_lab_belongs_to_the_process_with_the_lock_until_it_dies(tmp_path: Path) -> None:
    directory = LabDirectory(tmp_path, "lab")
    assert directory.holder() is None
    program = (
        "import sys; from pathlib import Path; from nodeagent.lab.directory import LabDirectory;"
        "LabDirectory(Path(sys.argv[1]), 'lab').hold(); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert directory.holder() == holder.pid
        with pytest.raises(LabError, match="exists already"):
            directory.hold()
        with pytest.raises(LabError, match="exists already"):
            directory.sweep()
        holder.kill()
        holder.wait()
    assert directory.holder() is None
    assert directory.sweep() == [str(tmp_path / "lab")]
    assert directory.sweep() == []


def test_a_lock_on_a_removed_file_does_not_count(tmp_path: Path) -> None:
    directory = LabDirectory(tmp_path, "lab")
    directory.hold()
    descriptor = os.open(directory.path / "lock", os.O_RDWR)
    directory.remove()
    assert directory.holder() is None
    directory.hold()
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
    assert (directory.path / "lock").exists()
