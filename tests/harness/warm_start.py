"""The commands of `nodeagent` as forks, for tests in which the start itself is not the point."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from zlib import crc32

from nodeagent.lab.net import warm_launcher
from nodeagent.lab.net.fork_server import Fork, ForkServer
from nodeagent.lab.net.warm_launcher import modules_of
from tests.harness import busy_start, lacking_start, warm_supervisor
from tests.harness.effort import SEED
from tests.harness.worlds.sctp_actor import ACTOR

AGENT = warm_launcher.NODEAGENT
OF_A_NODE = ("run", "show", "trace", "explain", "diff", "plan", "problems", "top", "bundle", "check", "dns", "cleanup")
COMMANDS = (*OF_A_NODE, "config", "apiserver", "lab")
ON_DEMAND = (
    *("nodeagent.cli.source_view", "nodeagent.cli.api_lists", "nodeagent.cli.names_source"),
    *("nodeagent.proxy.source.manifests.manifest_source", "nodeagent.kinds.pod", "nodeagent.kinds.podtemplate"),
    *("anyio._backends._asyncio", "encodings.idna", "encodings.utf_8_sig", "_strptime"),
)
"""What some of them import when they need it. In an agent that is a quarter of its start as a fork."""
MODULES = (
    ACTOR,
    *modules_of(*COMMANDS),
    *ON_DEMAND,
    "nodeagent.lab.supervisor",
    "tests.harness.warm_supervisor",
    "tests.harness.busy_start",
    "tests.harness.lacking_start",
)
"""What a fork server needs to have imported for worlds, for these commands, and for labs."""


class WarmLauncher(warm_launcher.WarmLauncher):
    """Forks what begins with AGENT; other programs are started as usual.

    actors: forks the actors of worlds. One that has imported nothing else has a fifth of the memory, and a fork of it costs half.
    seeds: of the kernel faults of each fork, one after the other; None: of the next forks no request fails by chance.
    lack: what the kernel of the next forks lacks (`lacking_start.LACKS`).
    """

    seeds: Iterator[int] | None = None
    lack = ""

    def __init__(self, fork_server: ForkServer, actors: ForkServer | None = None) -> None:
        super().__init__(fork_server)
        self.actors = actors or fork_server

    def entry(self) -> tuple[str, ...]:
        if self.lack:
            return lacking_start.ENTRY, self.lack
        return (warm_supervisor.ENTRY,) if self.seeds is None else (busy_start.ENTRY, str(next(self.seeds)))

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """For what is forked inside, some of its requests to the kernel fail, by chance of this name (`busy_start.OF_SCENES`)."""
        before, seed = self.seeds, crc32(name.encode()) + SEED
        self.seeds = count(seed)
        try:
            yield
        finally:
            self.seeds = before
            print(f"kernel faults of seeds from {seed}")

    def on_terminal(self, namespace: str, arguments: Sequence[str], terminal: int) -> Fork:
        """A command of `nodeagent` that goes on, with a terminal as all its streams."""
        return self.fork(namespace, arguments, os.environ, os.getcwd(), (terminal,) * 3, "nodeagent")
