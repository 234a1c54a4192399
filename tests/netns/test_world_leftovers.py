"""Nothing of a world outlives its creator, however that one ends; and nothing of anyone else is touched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import DIRECTORY as NAMESPACES
from nodeagent.lab.net.network_namespaces import (
    LabError,
    create_namespaces,
    enter,
    is_alive,
    namespace_name,
    our_namespaces,
    remove_namespace,
    sweep,
)
from nodeagent.model.runtime_files import files_left_by
from tests.harness.worlds.world import World

CREATOR = """
import time
from tests.harness.worlds.world import World
with World() as world:
    world["web-0"].serve(80)
    agent = world.start("node-a", ["sleep", "1000"])
    print(agent.pid, flush=True)
    while True:
        time.sleep(0.1)  # a signal just before a longer one would be heard when that is over
"""

pytestmark = pytest.mark.usefixtures("network_namespaces")


def namespaces_of(pid: int) -> list[str]:
    return [name for name in our_namespaces() if name.startswith(f"nodeagent-lab-{pid}-")]


def wait_until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, None, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, -signal.SIGTERM, id="terminated"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="killed"),
    ],
)
def test_a_creator_that_is_ended_leaves_no_namespace_and_no_process(number: signal.Signals, status: int | None) -> None:
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", CREATOR],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
    ) as creator:
        assert creator.stdout
        agent = int(creator.stdout.readline())
        assert len(namespaces_of(creator.pid)) == 9
        creator.send_signal(number)
        ended = creator.wait(60)

    if status is not None:
        assert ended == status
    wait_until(lambda: not namespaces_of(creator.pid))
    wait_until(lambda: not is_alive(agent))


def test_an_error_inside_the_context_leaves_nothing() -> None:
    worlds_of_other_tests = namespaces_of(os.getpid())

    def fail() -> None:
        with World():
            assert len(namespaces_of(os.getpid())) > len(worlds_of_other_tests)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert namespaces_of(os.getpid()) == worlds_of_other_tests


def left_behind(world: str) -> str:
    """A namespace whose creator has ended. It lives until the namespace exists: other tests sweep at any moment."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as creator:
        name = namespace_name(creator.pid, world, "pod")
        create_namespaces([name])
    return name


def test_a_sweep_takes_only_what_dead_creators_left() -> None:
    left, alive = left_behind("ab"), namespace_name(os.getpid(), "ab", "pod")
    foreign = f"somebody-else-{left}"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        create_namespaces([alive])
        sweep()
        assert left not in our_namespaces(), "in any order of sweeps: others on this machine do it too"
        assert alive in our_namespaces()
        assert foreign in os.listdir("/run/netns")
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)
        remove_namespace(alive)


def test_files_of_agents_go_with_their_namespace() -> None:
    name = namespace_name(os.getpid(), "ef", "node")
    create_namespaces([name])
    files = [Path(path) for path in files_left_by((NAMESPACES / name).stat().st_ino)]
    files[0].parent.mkdir(parents=True, exist_ok=True)
    for file in files:
        file.touch()
    remove_namespace(name)
    assert [file for file in files if file.exists()] == []


def test_a_new_world_sweeps_first() -> None:
    left = left_behind("cd")
    with World():
        assert left not in our_namespaces()


@pytest.mark.parametrize(
    "name", ["web", "nodeagent-lab-1-zz-pod", "../nodeagent-lab-1-aa-pod", "nodeagent-lab-1-aa-pod/x"]
)
def test_names_that_are_not_of_the_lab_are_refused(name: str) -> None:
    for touch in (remove_namespace, enter, lambda name: create_namespaces([name])):
        with pytest.raises(LabError, match="not a namespace of the lab"):
            touch(name)


def test_a_zombie_counts_as_dead() -> None:
    with subprocess.Popen(["true"]) as process:
        wait_until(lambda: not is_alive(process.pid))
        assert process.returncode is None
