"""A node whose agent follows a directory of manifests while commands ask it."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster
from tests.harness.looking import LATEST_SECONDS, look_later
from tests.harness.warm_start import WarmLauncher
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.world import World

PATIENCE = 90.0


class WatchedNode:
    """A node whose agent follows a directory of manifests, and `nodeagent explain` on it."""

    def __init__(self, cluster: Cluster, launcher: WarmLauncher, directory: Path) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.socket = directory / "agent.sock"
        self._launcher = launcher
        self.agent: AgentProcess | None = None

    def start(self) -> AgentProcess:
        flags = (
            "--table-ownership=plain",
            "--manage-sysctls=false",  # a sysctl that a test changes stays as it is
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        )
        self.agent = self.cluster.start_agent(*WITH_POD_CIDRS, *flags, f"--socket={self.socket}")
        return self.agent

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._launcher.command(self.world.namespace(NODE), arguments)

    def explain(self, *arguments: str) -> tuple[int, str]:
        """Exit code and first line, as the agent has it."""
        done = self.run("explain", *arguments, "--socket", str(self.socket))
        return done.returncode, done.stdout.partition("\n")[0]

    def all(self) -> dict[str, str]:
        """Service → verdict, of those that are not healthy."""
        done = self.run("explain", "--probe", "-o", "json", "--socket", str(self.socket))
        document = json.loads(done.stdout)
        assert next(iter(document)) == "verdict"
        assert done.returncode == bool(document["services"]) == (not document["healthy"])
        return {one["service"]: one["verdict"] for one in document["services"]}

    def eventually(self, *arguments: str, says: tuple[str, ...]) -> int:
        """The exit code once the first line says this; what objects say now is programmed in a moment."""
        found: tuple[int, str] = (0, "")

        def said() -> bool:
            nonlocal found
            found = self.explain(*arguments)
            return all(text in found[1] for text in says)

        wait_for(said, lambda: f"{says} in {found}")
        return found[0]


def wait_for(condition: Callable[[], bool], what: Callable[[], str], latest_seconds: float = LATEST_SECONDS) -> None:
    """Returns when the condition holds. latest_seconds: the longest pause before it is looked at again, also if it is slow to come."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + PATIENCE, f"never: {what()}"
        look_later(began, latest_seconds)
