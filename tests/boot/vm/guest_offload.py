"""Runs inside the virtual machine: connections that the agent offloads to a flowtable, and what became of them.

Pods have a veth of their own in the node, as with most network plugins; guest_story.py has pods behind a bridge. Everything seen is written
as JSON; the tests outside decide whether it is right.

    NODEAGENT_DATAPLANE_FLOWTABLE=true python -m tests.boot.vm.guest_offload OUT.json
"""

import json
import os
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from nodeagent.lab.net.member import Holding
from nodeagent.lab.net.topology import NO_BRIDGE, Pod
from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import ServiceSpec
from tests.boot.vm.guest_story import (
    COUNT,
    FLAGS,
    NODE_PORT,
    PATIENCE,
    PODS,
    PatientLauncher,
    counted,
    generation_in,
)
from tests.harness.cluster import NODE, TARGET_PORT, Cluster, cluster_ips, elements_written
from tests.harness.objects import service_port
from tests.harness.worlds.topology import standard_topology
from tests.harness.worlds.world import World

OPTION = "NODEAGENT_DATAPLANE_FLOWTABLE"
WEB = cluster_ips(10)
LOCAL = ("198.51.100.20", "2001:db8:100::20")
LOCAL_NODE_PORT = 30081
"""Where a Service with `externalTrafficPolicy: Local` answers."""
UDP_PORT = 81
FAR = "far-0"
CLIENTS = ("caller", "web-0", "outside")
"""A pod, a pod that is an endpoint itself (some of its connections come back to it), and a host beyond the router."""
SETTLING_SECONDS = 1.5
"""The kernel removes the entries of connections that ended once a second (nf_flow_table_core.c, nf_flow_offload_work_gc)."""
WATCH = """table inet watch {
    chain forwarded { type filter hook forward priority 0; meta l4proto { tcp, udp } counter comment "forwarded"; }
}"""


class Offloading:
    """The steps, each of which adds what it saw to `facts`."""

    def __init__(self, world: World, cluster: Cluster, stack: ExitStack) -> None:
        self.facts: dict[str, object] = {"kernel": os.uname().release}
        self._world, self._cluster, self._stack = world, cluster, stack
        self._held: dict[str, Holding] = {}

    def tell(self) -> None:
        for step in (
            self.start,
            self.offload,
            self.bypass,
            self.restart,
            self.follow_devices,
            self.move_udp,
            self.end_connections,
            self.switch_off,
        ):
            began = time.monotonic()
            step()
            print(f"guest: {step.__name__} took {time.monotonic() - began:.1f} s", flush=True)

    def start(self) -> None:
        for pod in (*PODS, FAR):
            self._world[pod].serve(TARGET_PORT)
            self._world[pod].serve(TARGET_PORT, Protocol.UDP)
        self._expose(*PODS, FAR)
        spec = ServiceSpec(external_traffic_policy="Local", external_ips=LOCAL)
        ports = [service_port(80, name="http", node_port=LOCAL_NODE_PORT)]
        self._cluster.expose("local", *cluster_ips(11), pods=(PODS[0], FAR), ports=ports, spec=spec)
        self._agent = self._cluster.start_agent(*FLAGS, seconds=PATIENCE)
        self._agent.wait_until(lambda: "nodeagent" in self._devices(), "devices", seconds=PATIENCE)
        self._world.nft(NODE, WATCH)
        self.facts["log"], self.facts["ruleset"] = self._agent.lines, self._on_node("nft", "list", "ruleset")
        self.facts["devices"] = self._devices()

    def offload(self) -> None:
        """TCP from everywhere to the ClusterIPs, and from outside to node ports and external addresses."""
        opened = {}
        for client in CLIENTS:
            targets = [(address, 80) for address in WEB]
            if client == "outside":
                ports = (NODE_PORT, LOCAL_NODE_PORT)
                targets += [(address, port) for port in ports for address in self._world[NODE].addresses]
                targets += [(address, 80) for address in LOCAL]
            for address, port in targets:
                name = f"{client} {address} {port}"
                self._held[name] = self._stack.enter_context(
                    self._world[client].hold(address, port, count=COUNT, timeout=PATIENCE)
                )
                opened[name] = self._held[name].opened
        self.facts["opened"] = {
            name: {"names": survey.names, "failures": counted(survey), "peers": sorted(survey.peers)}
            for name, survey in opened.items()
        }
        self._ask()
        self.facts["tracked"] = self._tracked("tcp")

    def bypass(self) -> None:
        """More questions on connections that are offloaded: who answers, and which chains saw them."""
        before = self._forwarded()
        self.facts["again"] = [self._ask() for _ in range(3)]
        self.facts["forwarded"] = [before, self._forwarded()]

    def restart(self) -> None:
        before, devices = self._generation(), self._devices()
        self._agent.stop(seconds=PATIENCE)
        self.facts["without an agent"] = self._ask()
        printed = len(self._agent.lines)
        self._agent.restart()
        self._agent.wait_for_line(" ready: ", seconds=PATIENCE, after=printed)
        time.sleep(2 * SETTLING_SECONDS)
        self.facts["restart"] = {
            "generations": [before, self._generation()],
            "elements": elements_written(self._agent, after=printed),
            "devices": [devices, self._devices()],
            "answers": self._ask(),
        }

    def follow_devices(self) -> None:
        """A pod comes and goes."""
        before = self._devices()
        self._world.add_pod(NODE, Pod("late", ("10.244.1.77", "fd00:244:1::4d")))
        self._agent.wait_until(lambda: self._devices() != before, "a new device", seconds=PATIENCE)
        after = self._devices()
        self._world.remove_pod("late")
        self._agent.wait_until(lambda: self._devices() == before, "the devices as before", seconds=PATIENCE)
        self.facts["a pod came"] = [before, after]

    def move_udp(self) -> None:
        """A client that keeps its port goes on sending while its endpoint leaves."""
        held = self._stack.enter_context(
            self._world["caller"].hold(WEB[0], UDP_PORT, Protocol.UDP, source_port=5353, timeout=1.0)
        )
        (first,) = held.opened
        self._agent.wait_until(
            lambda: not held.ask().failures and "[OFFLOAD]" in self._tracked("udp"), "UDP offloaded", seconds=PATIENCE
        )
        forwarded = self._forwarded()
        answers = [held.ask().only.name for _ in range(5)]
        passed = self._forwarded() - forwarded
        self._expose(*(pod for pod in (*PODS, FAR) if pod != first.name))
        self._agent.wait_until(
            lambda: any(one.name not in {"", first.name} for one in held.ask()), "another endpoint", seconds=PATIENCE
        )
        self.facts["udp"] = {
            "first": first.name,
            "offloaded": answers,
            "chains saw": passed,
            "then": [held.ask().only.name for _ in range(5)],
        }
        self.facts["tcp of an endpoint that left"] = self._ask()

    def end_connections(self) -> None:
        """The kernel must not remember closed connections for a day."""
        short = [f"{client} {WEB[0]} 80" for client in ("caller", "web-0")]
        for name in short:
            self._held.pop(name).stop()
        time.sleep(2 * SETTLING_SECONDS)
        sources = {self._world[client].addresses[0] for client in ("caller", "web-0")}
        lines = self._tracked("tcp").splitlines()
        self.facts["ended"] = [
            line for line in lines if any(f" src={source} dst={WEB[0]} " in line for source in sources)
        ]

    def switch_off(self) -> None:
        """The next agent has the option off: the same table, and connections go through its chains again."""
        handle = self._handle()
        self._agent.stop(seconds=PATIENCE)
        os.environ.pop(OPTION)
        self._agent = self._cluster.start_agent(*FLAGS, seconds=PATIENCE)
        time.sleep(SETTLING_SECONDS)
        before = self._forwarded()
        self.facts["off"] = {
            "answers": self._ask(),
            "forwarded": self._forwarded() - before,
            "ruleset": self._on_node("nft", "list", "table", "ip", "nodeagent"),
            "tracked": self._tracked("tcp"),
            "handles": [handle, self._handle()],
        }

    def _expose(self, *pods: str) -> None:
        ports = [service_port(80, name="http", node_port=NODE_PORT), service_port(UDP_PORT, Protocol.UDP, name="udp")]
        self._cluster.expose("web", *WEB, pods=pods, ports=ports)

    def _ask(self) -> dict[str, dict[str, object]]:
        """Returns the answers on all held connections."""
        surveys = {name: held.ask() for name, held in self._held.items()}
        return {
            name: {"names": survey.names, "failures": counted(survey), "peers": sorted(survey.peers)}
            for name, survey in surveys.items()
        }

    def _tracked(self, protocol: str) -> str:
        return "".join(self._on_node("conntrack", "-L", "-f", family, "-p", protocol) for family in ("ipv4", "ipv6"))

    def _forwarded(self) -> int:
        found = re.search(r"counter packets (\d+)", self._on_node("nft", "list", "table", "inet", "watch"))
        assert found is not None
        return int(found[1])

    def _devices(self) -> str:
        return self._on_node("nft", "list", "flowtables")

    def _handle(self) -> str:
        return str(re.findall(r"# handle (\d+)", self._on_node("nft", "-a", "list", "table", "ip", "nodeagent"))[0])

    def _on_node(self, *command: str) -> str:
        return self._world.run(NODE, command).stdout

    def _generation(self) -> int:
        return generation_in(self._world.namespace(NODE))


def main(out: Path) -> None:
    topology = standard_topology(pod_bridge=NO_BRIDGE)
    with (
        tempfile.TemporaryDirectory() as manifests,
        World(topology, launcher=PatientLauncher()) as world,
        ExitStack() as stack,
    ):
        story = Offloading(world, Cluster(world, Path(manifests)), stack)
        try:
            story.tell()
        finally:
            out.write_text(json.dumps(story.facts, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
