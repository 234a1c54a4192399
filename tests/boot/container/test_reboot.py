"""A node of three reboots under load: nothing is lost elsewhere, and it serves again by itself, also while no API server answers.

A reboot takes everything that the node's kernel knew, as it does on a machine: links, rules, connections, sysctls. What is on disk stays.
In order: each test goes on where the last ended.
"""

import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from nodeagent.lab.net.member import Holding, Loading
from nodeagent.lab.net.network_namespaces import DIRECTORY
from nodeagent.lab.net.topology import Node, OutsideHost, Pod, Topology
from nodeagent.model.addresses import Family
from tests.harness.api_cluster import CONTROL, CONTROL_ADDRESSES, ApiCluster, Tenant
from tests.harness.lost_packets import PATIENT, resent_syns
from tests.harness.worlds.topology import pods_of
from tests.harness.worlds.world import World

from .conftest import AGENT, CONFIG, PACKAGES, TREE, package
from .machine import Machine

FIRST, REBOOTED, THIRD = "node-1", "node-2", "node-3"
NODES = (FIRST, REBOOTED, THIRD)
ELSEWHERE = ("on-1-0", "on-3-0")
HERE = "on-2-0"
CLIENTS = ("caller", "outside", FIRST)
NODE_PORT = 30080
SNAPSHOT = "/var/lib/nodeagent/snapshot"
KUBECONFIG = "/etc/nodeagent/kubeconfig"
LOAD = 50


def three_nodes() -> Topology:
    """Each with one pod that serves; the first with one that only connects, too."""
    nodes = []
    for number, name in enumerate(NODES, start=1):
        callers = (Pod("caller", ("10.244.1.200", "fd00:244:1::c8")),) if name == FIRST else ()
        nodes.append(
            Node(
                name,
                (f"192.168.0.{number + 1}", f"2001:db8::{number + 1}"),
                (f"10.244.{number}.1", f"fd00:244:{number}::1"),
                (*pods_of(f"on-{number}", 1, subnet=number), *callers),
                pod_bridge="cni0",
            )
        )
    outside = OutsideHost("outside", ("203.0.113.2", "2001:db8:ffff::2"))
    return Topology(tuple(nodes), (outside, OutsideHost(CONTROL, CONTROL_ADDRESSES)))


@dataclass
class Trio:
    """Three machines, and the API server that their agents follow. shop: the ClusterIPs of a Service of all pods, which has NODE_PORT."""

    cluster: ApiCluster
    tenant: Tenant
    shop: tuple[str, ...]
    directory: Path
    machines: dict[str, Machine] = field(default_factory=dict)
    boots: int = 0

    def boot(self, name: str) -> Machine:
        """Switch a machine on; it boots from its own disk."""
        self.boots += 1
        disk, place = self.directory / name, self.directory / f"{name}-{self.boots}"
        for directory in (disk, place):
            directory.mkdir(exist_ok=True)
        network = DIRECTORY / self.cluster.world.namespace(name)
        self.machines[name] = Machine(TREE, place, network, binds={PACKAGES: "/packages"}, disk=disk).__enter__()
        return self.machines[name]

    def install(self, name: str) -> None:
        """The package, configured, and enabled as an administrator does."""
        machine = self.machines[name]
        machine.run("dpkg", "--force-unsafe-io", "--install", f"/packages/{package(1).name}")
        machine.write(KUBECONFIG, self.cluster.kubeconfig.read_text())
        machine.run("chown", "root:nodeagent", KUBECONFIG)
        machine.write(
            CONFIG,
            "apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\n"
            f"source:\n  kubeconfig: {KUBECONFIG}\n  snapshot: {SNAPSHOT}\nnode:\n  name: {name}\n",
        )
        machine.systemctl("enable", "--now", AGENT)

    def lose(self, name: str) -> None:
        """The node's network, with all that its kernel knew; its machine has ended."""
        self.machines.pop(name).close()
        self.cluster.world.cut_power(name)
        self.cluster.world.give_power(name)

    def answers(self, client: str, address: str, port: int, *, timeout: float = 0.3) -> set[str]:
        """Who answers a client, and the kinds of failures."""
        survey = self.cluster.world[client].ask(address, port, count=12, workers=12, timeout=timeout)
        return {answer.failure.value if answer.failure else answer.name for answer in survey}

    def serves(self, name: str, *pods: str) -> bool:
        """Whether a node leads to just these pods: from its own network to the ClusterIPs, and from outside by its node port."""
        own = all(self.answers(name, address, 80) == set(pods) for address in self.shop)
        node = self.cluster.world[name]
        return own and all(self.answers("outside", node.address(family), NODE_PORT) == set(pods) for family in Family)

    def until_all_serve(self, *pods: str) -> None:
        """Wait until every node leads to just these pods."""
        for name, machine in self.machines.items():
            machine.wait_until(partial(self.serves, name, *pods), f"{name} serving {pods}")

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """All three serve, and have saved what they know."""
    with ExitStack() as stack:
        world = stack.enter_context(World(three_nodes()))
        cluster = ApiCluster(world, tmp_path_factory.mktemp("control"))
        cluster.start_server()
        cluster.declare_nodes()
        tenant = cluster.tenant("shop")
        for pod in (*ELSEWHERE, HERE):
            cluster.serve(pod)
            tenant.run_pod(pod)
        port = {"name": "http", "port": 80, "targetPort": 8080, "nodePort": NODE_PORT}
        tenant.expose("shop", type="NodePort", ports=[port])
        found = Trio(cluster, tenant, tenant.cluster_ips("shop"), tmp_path_factory.mktemp("machines"))
        found.directory.chmod(0o755)
        stack.callback(found.close)
        for name in NODES:
            found.boot(name)
            found.install(name)
        found.until_all_serve(*ELSEWHERE, HERE)
        yield found


class Load:
    """New connections all the time, by ClusterIP from the first node and its pod and by the node ports of those that stay, and open ones."""

    def __init__(self, trio: Trio, stack: ExitStack) -> None:
        self._trio = trio
        world = trio.cluster.world
        ways = [(client, address, 80) for client in ("caller", FIRST) for address in trio.shop]
        ways += [("outside", world[name].address(family), NODE_PORT) for name in (FIRST, THIRD) for family in Family]
        self._held: list[Holding] = [
            stack.enter_context(world[client].hold(address, port, count=3)) for client, address, port in ways
        ]
        self.loads: list[Loading] = [
            stack.enter_context(world[client].load(address, port, interval=0.02, timeout=PATIENT))
            for client, address, port in ways
        ]
        self._resent = self._count_resent()

    def flow(self) -> None:
        """Wait for a good number of connections more of each."""
        before = [load.report().attempts for load in self.loads]
        machine = self._trio.machines[FIRST]
        machine.wait_until(
            lambda: all(load.report().attempts >= count + LOAD for load, count in zip(self.loads, before, strict=True)),
            "connections",
        )

    def lost(self) -> dict[str, object]:
        """What did not go well since the beginning; empty: nothing was lost."""
        found = {
            "failed": {key: value for load in self.loads for key, value in load.report().failures.items()},
            "not answered on open connections": [one for holding in self._held for one in holding.ask().failures],
            "sent again": self._count_resent() - self._resent,
            "of others": {name for load in self.loads for name in load.report().names} - set(ELSEWHERE),
        }
        return {what: value for what, value in found.items() if value}

    def _count_resent(self) -> int:
        return sum(resent_syns(self._trio.cluster.world, client) for client in CLIENTS)


def drain(trio: Trio) -> None:
    """As before a planned reboot: the pod of the node ends, and every node knows."""
    trio.tenant.end_pod(HERE)
    trio.until_all_serve(*ELSEWHERE)


def test_a_reboot_loses_nothing_elsewhere_and_the_node_serves_again(trio: Trio) -> None:
    drain(trio)
    with ExitStack() as stack:
        load = Load(trio, stack)
        load.flow()
        trio.machines[REBOOTED].power_off(seconds=60)
        trio.lose(REBOOTED)
        assert not trio.serves(REBOOTED, *ELSEWHERE), "control: the kernel of the node kept rules"
        load.flow()
        machine = trio.boot(REBOOTED)
        machine.wait_until(lambda: trio.serves(REBOOTED, *ELSEWHERE), "the node serving again")
        load.flow()
        assert load.lost() == {}
    trio.tenant.run_pod(HERE)
    trio.until_all_serve(*ELSEWHERE, HERE)


def test_the_agent_serves_again_while_no_api_server_answers(trio: Trio) -> None:
    """The power fails this time, and the server is gone before; the pod comes back with the node, at its address."""
    machine = trio.machines[REBOOTED]
    machine.wait_until(lambda: trio.cluster.world[HERE].address() in saved_state(machine), "what it knows, saved")
    machine.run("sync")
    trio.cluster.server.kill()
    trio.lose(REBOOTED)
    machine = trio.boot(REBOOTED)
    machine.wait_until(partial(trio.serves, REBOOTED, *ELSEWHERE, HERE), "the saved state in force")
    explained = machine.run("nodeagent", "explain", "shop/shop", "--no-probe", check=False).stdout
    assert explained.startswith("impaired: what this node knows of it may be outdated"), explained
    trio.cluster.restart_server()
    machine.wait_until(partial(healthy, machine), "the server followed")


def test_without_a_saved_state_it_serves_nothing_until_the_server_answers(trio: Trio) -> None:
    """The control of the test above: the same without the file. The agent is started by hand, or the machine would not have booted before
    it is ready."""
    machine = trio.machines[REBOOTED]
    machine.systemctl("disable", "--now", AGENT)
    machine.run("rm", SNAPSHOT)
    machine.run("sync")
    trio.cluster.server.kill()
    trio.lose(REBOOTED)
    machine = trio.boot(REBOOTED)
    machine.systemctl("start", "--no-block", AGENT)
    machine.wait_for_line(AGENT, r"starting node=.* source=kubeconfig")
    machine.wait_for_line(AGENT, "Connect|refused|timeout")
    assert not {*ELSEWHERE, HERE} & trio.answers(REBOOTED, trio.shop[0], 80)
    trio.cluster.restart_server()
    machine.wait_until(partial(trio.serves, REBOOTED, *ELSEWHERE, HERE), "the node serving")


def saved_state(machine: Machine) -> str:
    """The objects that its agent saved last, as JSON."""
    content = (machine.root / SNAPSHOT.lstrip("/")).read_bytes()
    return zlib.decompress(content.split(b"\n", 2)[2]).decode()


def healthy(machine: Machine) -> bool:
    return machine.run("nodeagent", "explain", "shop/shop", check=False).stdout.startswith("healthy")


def test_connections_to_a_node_that_is_lost_are_seen_as_lost(trio: Trio) -> None:
    """The control of the first test, and the last: its load sees when something is lost."""
    with ExitStack() as stack:
        load = Load(trio, stack)
        load.flow()
        trio.lose(THIRD)
        trio.machines[FIRST].wait_until(lambda: any(one.report().failures for one in load.loads), "a failed connection")
        assert "failed" in load.lost()
