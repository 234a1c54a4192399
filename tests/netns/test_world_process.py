"""The agent's stand-in: any program, in a node's namespace, watched and ended."""

import signal
import sys

import pytest

from nodeagent.lab.net.network_namespaces import LabError, is_alive
from tests.harness.worlds.world import World

READY_THEN_WAIT = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("starting", flush=True)
print("ready", file=sys.stderr, flush=True)
signal.sigwait([signal.SIGTERM])
sys.exit(7)
"""


pytestmark = pytest.mark.usefixtures("network_namespaces")


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_program_runs_in_its_namespace_and_sees_only_its_devices(shared_world: World) -> None:
    process = shared_world.start("web-0", ["sh", "-c", "ls /sys/class/net; ip -o -4 addr show dev eth0; echo done"])
    process.wait_for_line("^done$")

    assert process.lines[0] == "eth0"
    assert "lo" in process.lines
    assert shared_world["web-0"].address() in " ".join(process.lines)


def test_readiness_is_a_line_on_either_stream(shared_world: World) -> None:
    process = shared_world.start("node-a", python(READY_THEN_WAIT))

    assert process.wait_for_line("read.$") == "ready"
    assert process.stop() == 7
    assert not process.running


def test_a_program_that_ends_before_it_is_ready_is_an_error_with_its_last_words(shared_world: World) -> None:
    process = shared_world.start("node-a", ["sh", "-c", "echo no such option; exit 3"])

    with pytest.raises(LabError, match=r"(?s)no such option.*ended with 3 before a line with 'ready'"):
        process.wait_for_line("ready")


def test_a_program_that_does_not_get_ready_is_an_error(shared_world: World) -> None:
    process = shared_world.start("node-a", ["sleep", "60"])

    with pytest.raises(LabError, match=r"did not show a line with 'ready' within 0\.1 s"):
        process.wait_for_line("ready", seconds=0.1)


def test_a_program_deaf_to_sigterm_is_killed(shared_world: World) -> None:
    process = shared_world.start(
        "node-a", python("import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\nsignal.pause()")
    )
    process.wait_for_line("up")

    with pytest.raises(LabError, match=r"still ran 0\.2 s after SIGTERM"):
        process.stop(seconds=0.2)
    assert not process.running


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_restart_is_the_same_command_once_more(shared_world: World, killed: bool) -> None:
    process = shared_world.start("node-a", python(READY_THEN_WAIT))
    process.wait_for_line("ready")
    first, printed = process.pid, len(process.lines)
    if killed:
        process.kill()
    process.restart()

    process.wait_for_line("ready", after=printed)
    assert process.pid != first
    assert not is_alive(first)


def test_a_program_gets_its_environment_and_signals(shared_world: World) -> None:
    process = shared_world.start(
        "node-a",
        ["sh", "-c", "trap 'echo reloading $COLOUR' HUP; echo up; while :; do sleep 0.01; done"],
        environment={"COLOUR": "green"},
    )
    process.wait_for_line("up")
    process.signal(signal.SIGHUP)

    assert process.wait_for_line("reloading") == "reloading green"


def test_a_world_takes_its_programs_along() -> None:
    with World() as world:
        process = world.start("node-a", python(READY_THEN_WAIT))
        process.wait_for_line("ready")
    assert not process.running
