"""What tests and labs start by a fork is what a user starts by `python -m nodeagent`."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodeagent.lab.net.namespace_process import Launcher
from nodeagent.lab.net.network_namespaces import DIRECTORY, inside, is_alive
from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import AGENT, WarmLauncher
from tests.harness.worlds.world import World

ROOT = Path(__file__).parents[2]
TIME = re.compile(r"^\d\d:\d\d:\d\d\.\d+ ", re.MULTILINE)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--version"], id="version"),
        pytest.param(["no-such-command"], id="usage error"),
        pytest.param(["run", "--once", "--manifests", "/nowhere"], id="failure"),
        pytest.param(["show", "services"], id="nothing programmed"),
        pytest.param(["config", "check", "--config", "/dev/stdin"], id="reads its input"),
    ],
)
def test_a_command_prints_and_returns_the_same(
    shared_world: World, warm_launcher: WarmLauncher, arguments: list[str]
) -> None:
    namespace = shared_world.namespace("caller")
    done = (
        launcher.run(namespace, [*AGENT, *arguments], stdin="no: [such thing")
        for launcher in (Launcher(), warm_launcher)
    )
    cold, warm = ((one.returncode, one.stdout, TIME.sub("", one.stderr)) for one in done)
    assert warm == cold


def test_an_agent_is_in_its_namespace_with_its_own_devices_and_environment(cluster: Cluster) -> None:
    command = [*AGENT, "run", "--manifests", str(cluster.manifests.path)]
    agent = cluster.world.start(NODE, command, environment={"NODEAGENT_NODE_NAME": NODE})
    agent.wait_for_line(f" ready: .* on {NODE}")
    process = Path(f"/proc/{agent.pid}")
    assert (process / "ns" / "net").stat().st_ino == (DIRECTORY / cluster.world.namespace(NODE)).stat().st_ino
    assert set(os.listdir(process / "root/sys/class/net")) >= {"nodeagent0", "web-0"}
    assert os.getsid(agent.pid) == agent.pid
    assert (process / "cmdline").read_text().split("\0") == [*command, ""]
    assert (process / "comm").read_text().strip() == Path(command[0]).name
    assert agent.stop() == 0


def test_where_no_namespace_is_named_it_is_that_of_the_thread_that_starts_it(
    shared_world: World, warm_launcher: WarmLauncher
) -> None:
    place = shared_world.namespace("caller")
    server = [*AGENT, "apiserver", "--insecure", "--listen", "127.0.0.1:0"]
    with open(os.devnull, "wb") as nothing:
        process = inside(place, lambda: warm_launcher.start("", server, os.environ, nothing.fileno()))
    deadline = time.monotonic() + 90
    while Path(f"/proc/{process.pid}/ns/net").stat().st_ino != (DIRECTORY / place).stat().st_ino:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()


CREATOR = """
import os, signal
from tests.harness.worlds.forks import SeparateForkServer
from tests.harness.worlds.world import World
from tests.harness.warm_start import AGENT, MODULES, WarmLauncher
launcher = WarmLauncher(SeparateForkServer(*MODULES))
with World(fork_server=launcher.fork_server, launcher=launcher) as world:
    agent = world.start("caller", [*AGENT, "run", "--master", "http://192.0.2.1", "--node-name", "n"])
    agent.wait_for_line("192.0.2.1")
    print(agent.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_agent_ends_with_the_process_that_started_it(network_namespaces: None) -> None:
    done = subprocess.run([sys.executable, "-c", CREATOR], capture_output=True, text=True, check=False, cwd=ROOT)
    agent = int(done.stdout)
    deadline = time.monotonic() + 90
    while is_alive(agent):
        assert time.monotonic() < deadline
        time.sleep(0.01)
