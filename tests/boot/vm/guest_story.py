"""Runs inside the virtual machine: a cluster of network namespaces, the agent on its node, and what became of it.

Everything seen is written as JSON; the tests outside decide whether it is right.

    python -m tests.boot.vm.guest_story OUT.json
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from nodeagent.lab.net.namespace_process import Launcher
from nodeagent.lab.net.network_namespaces import inside
from nodeagent.lab.net.survey import Survey
from nodeagent.model.objects import ServiceSpec
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips, elements_written
from tests.harness.objects import service_port
from tests.harness.worlds.topology import SERVICE_CIDRS
from tests.harness.worlds.world import World

WEB, STICKY, EMPTY = (cluster_ips(number) for number in (10, 0x100B, 12))
"""By IPv6 the second is reached by the route of its range, the others are local (docs/decisions/0084)."""
FLAGS = (*WITH_POD_CIDRS, "--service-cidr", ",".join(SERVICE_CIDRS))
NODE_PORT = 30080
PODS = ("web-0", "web-1", "web-2")
COUNT = 30
PATIENCE = 300.0
"""Seconds. Everything is some twenty times slower than on real hardware, the first commit loads two dozen modules, and other
machines are emulated at the same time."""


class PatientLauncher(Launcher):
    """Programs in namespaces may take as long as all else."""

    def run(
        self, namespace: str, argv: Sequence[str], *, stdin: str = "", timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        return super().run(namespace, argv, stdin=stdin, timeout=max(timeout, PATIENCE))


class Story:
    """The steps, each of which adds what it saw to `facts`."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.facts: dict[str, object] = {"kernel": os.uname().release}
        self._world = world
        self._cluster = cluster

    def tell(self) -> None:
        """All steps; the time that each took goes into ``steps``."""
        steps: list[Callable[[], None]] = [self.start, self.look, self.reload, self.connect, self.disturb, self.stick]
        steps += [self.restart, self.stop, self.once, self.clean_up]
        times: dict[str, float] = {}
        self.facts["steps"] = times
        for step in steps:
            began = time.monotonic()
            step()
            times[step.__name__] = round(time.monotonic() - began, 1)
            print(f"guest: {step.__name__} took {times[step.__name__]} s", flush=True)

    def start(self) -> None:
        """The agent, on a service with three pods and one without any."""
        for pod in PODS:
            self._world[pod].serve(TARGET_PORT)
        self._cluster.expose("web", *WEB, pods=PODS, ports=[service_port(80, name="http", node_port=NODE_PORT)])
        self._cluster.expose("empty", *EMPTY)
        self._agent = self._cluster.start_agent(*FLAGS, seconds=PATIENCE)
        self.facts["log"] = self._agent.lines

    def look(self) -> None:
        """What the programs of a distribution say about it."""
        (self.facts["link"],) = json.loads(self._on_node("ip", "-d", "-j", "address", "show", "nodeagent0"))
        self.facts["ruleset"] = self._on_node("nft", "list", "ruleset")

    def reload(self) -> None:
        """The listing, loaded on a node where nothing is programmed."""
        self._world.nft("node-b", re.sub(r"^\tflags owner.*\n", "", str(self.facts["ruleset"]), flags=re.MULTILINE))
        self.facts["reloaded"] = self._world.run("node-b", ["nft", "list", "ruleset"]).stdout
        self._world.nft("node-b", "flush ruleset")

    def connect(self) -> None:
        """From a pod, from the node and from outside, to the service's addresses and to the node port."""
        targets = [(address, 80) for address in WEB] + [(address, NODE_PORT) for address in self._world[NODE].addresses]
        surveys = {
            f"{client} {address} {port}": self._world[client].ask(address, port, count=COUNT)
            for client in ("caller", NODE, "outside")
            for address, port in targets
        }
        self.facts["answers"] = {
            name: {"names": survey.names, "failures": counted(survey), "peers": sorted(survey.peers)}
            for name, survey in surveys.items()
        }
        self.facts["refused"] = [counted(self._world["caller"].ask(address, 80)) for address in EMPTY]
        self.facts["show"] = json.loads(self._cluster.call("show", "services", "-o", "json"))

    def disturb(self) -> None:
        """Somebody takes an address away from the table; an owned table lets nobody."""
        edit = f"delete element ip nodeagent frontends {{ {WEB[0]} . tcp . 80 }}"
        refusal = self._world.run(NODE, ["nft", edit], check=False).stderr
        self.facts["refusal of an edit"] = refusal
        if not refusal:
            self._agent.wait_for_line("was changed by another process", seconds=PATIENCE)
        self._agent.wait_until(lambda: self._answered(WEB[0]), "the address back", seconds=PATIENCE)

    def stick(self) -> None:
        """One more service while the agent runs, with ClientIP affinity and addresses that nobody chose."""
        self._cluster.expose("sticky", *STICKY, pods=PODS, spec=ServiceSpec(session_affinity="ClientIP"))
        self._agent.wait_until(lambda: all(map(self._answered, STICKY)), "the new service", seconds=PATIENCE)
        clients = [self._world[client] for client in ("caller", "outside", NODE)]
        self.facts["pings"] = [counted(client.ping(address)) for client in clients for address in STICKY]
        self.facts["range"] = self._on_node("ip", "-6", "route", "get", STICKY[1])
        self.facts["sticky"] = [self._world["caller"].ask(address, 80, count=COUNT).names for address in STICKY]

    def restart(self) -> None:
        before = self._generation()
        # The last one may still say then what it had changed: it does so once a second at most.
        self._agent.stop(seconds=PATIENCE)
        printed = len(self._agent.lines)
        self._agent.restart()
        self._agent.wait_for_line(" ready: ", seconds=PATIENCE, after=printed)
        self.facts["restart"] = {
            "generations": [before, self._generation()],
            "elements": elements_written(self._agent, after=printed),
        }

    def stop(self) -> None:
        """SIGTERM; what is programmed stays in force."""
        status = self._agent.stop(seconds=PATIENCE)
        names = [self._world["caller"].ask(address, 80, count=COUNT).names for address in WEB]
        self.facts["stop"] = {"status": status, "names": names}

    def once(self) -> None:
        before = self._generation()
        self._cluster.program_once(*FLAGS)
        self.facts["once"] = {"generations": [before, self._generation()]}

    def clean_up(self) -> None:
        self._cluster.call("cleanup")
        self.facts["left"] = {
            "ruleset": self._on_node("nft", "list", "ruleset"),
            "links": self._on_node("ip", "-br", "link"),
        }

    def _answered(self, address: str) -> bool:
        return not self._world["caller"].ask(address, 80, timeout=0.5).failures

    def _on_node(self, *command: str) -> str:
        return self._world.run(NODE, command).stdout

    def _generation(self) -> int:
        return generation_in(self._world.namespace(NODE))


def generation_in(namespace: str) -> int:
    """Counts the changes to the ruleset of a namespace; asked for from inside."""

    def look() -> int:
        with closing(Ruleset()) as ruleset:
            return ruleset.generation()

    return inside(namespace, look)


def counted(survey: Survey) -> dict[str, int]:
    """Failures by name."""
    return {kind.value: count for kind, count in survey.failures.items()}


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as manifests, World(launcher=PatientLauncher()) as world:
        story = Story(world, Cluster(world, Path(manifests)))
        try:
            story.tell()
        finally:
            out.write_text(json.dumps(story.facts, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
