"""One family whose table somebody else holds does not take the other one with it, and is served when it is free."""

import sys
from collections.abc import Callable, Iterator

import pytest

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.objects import Service
from tests.harness.cluster import NODE, WITH_POD_CIDRS, cluster_ips
from tests.harness.objects import make_service
from tests.harness.serving_node import ServingNode
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

SQUATTER = """
import signal, struct, socket
NLMSG, OWNER = struct.Struct("=IHHII"), 2
def attribute(kind, data):
    return struct.pack("=HH", len(data) + 4, kind) + data + b"\\0" * (-len(data) % 4)
def message(kind, flags, payload, sequence):
    return NLMSG.pack(16 + len(payload), kind, flags, sequence, 0) + payload
def subject(family, resource=0):
    return struct.pack(">BBH", family, 0, resource)
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
family = {family}
table = subject(family) + attribute(1, b"nodeagent\\0") + attribute(2, struct.pack(">I", OWNER))
netlink.send(
    message(0x10, 1, subject(0, 10), 0) + message(0xA00, 0x605, table, 1) + message(0x11, 1, subject(0, 10), 2)
)
error = struct.unpack_from("=i", netlink.recv(4096), 16)[0]
print("holding" if not error else f"error {{error}}", flush=True)
signal.pause()
"""
"""Creates table `nodeagent` with the owner flag: the kernel keeps it from everyone else until the process ends."""

NUMBERS = {Family.IPV4: 2, Family.IPV6: 10}
OTHER = {Family.IPV4: Family.IPV6, Family.IPV6: Family.IPV4}
FAMILIES = pytest.mark.parametrize("held", Family, ids=lambda family: f"{family.value} is held")


@pytest.fixture
def hold_table(served: ServingNode) -> Iterator[Callable[[Family], AgentProcess]]:
    """A foreign process takes the table of a family."""
    processes: list[AgentProcess] = []

    def hold(family: Family) -> AgentProcess:
        served.world.run(NODE, [*AGENT, "cleanup"])
        program = SQUATTER.format(family=NUMBERS[family])
        processes.append(served.world.start(NODE, [sys.executable, "-c", program]))
        processes[-1].wait_for_line("^holding$")
        return processes[-1]

    yield hold
    for process in processes:
        process.kill()


def answers(served: ServingNode, service: Service, family: Family) -> set[str]:
    """Who answers at the ClusterIP of the family; nobody: empty."""
    (address,) = (a for a in service.spec.cluster_ips or () if family_of(a) is family)
    return set(served.world["caller"].ask(address, 80, timeout=0.2).names)


@FAMILIES
def test_a_family_whose_table_is_held_by_another_process_does_not_stop_the_other(
    served: ServingNode, hold_table: Callable[[Family], AgentProcess], held: Family
) -> None:
    service = make_service("web", *cluster_ips(1))
    served.cluster.manifests.put(*served.slices(service, "web-0"), service)
    holder = hold_table(held)
    agent = served.world.start(
        NODE,
        [*AGENT, "run", "--manifests", str(served.cluster.manifests.path), "--node-name", NODE, *WITH_POD_CIDRS],
    )
    agent.wait_until(lambda: answers(served, service, OTHER[held]) == {"web-0"}, "the other family served")
    assert answers(served, service, held) == set()
    agent.wait_for_line(rf"{held.value}.*(failed|not permitted)")

    served.cluster.manifests.put(*served.slices(service, "web-1"))
    agent.wait_until(lambda: answers(served, service, OTHER[held]) == {"web-1"}, "the other family kept up to date")

    holder.kill()
    agent.wait_until(lambda: answers(served, service, held) == {"web-1"}, "the family that was held")
    assert answers(served, service, OTHER[held]) == {"web-1"}
    agent.stop()
