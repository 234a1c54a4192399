"""Connections of TCP that hang at an endpoint that is gone, while new ones work: the first line of a trace names them."""

import time

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.member import Holding
from nodeagent.lab.net.topology import Pod
from nodeagent.model.addresses import Family, endpoint_text
from tests.harness.cluster import NODE, TARGET_PORT, Cluster, cluster_ips, of_family
from tests.harness.objects import make_service, make_slices
from tests.netns.trace.planting import (
    PATIENCE_SECONDS,
    SILENCE_SECONDS,
    first_line,
    program_again,
    works,
)

pytestmark = pytest.mark.kernel

OLD = Pod("old-0", ("10.244.1.77", "fd00:244:1::4d"))
SILENT = "table inet own { chain i { type filter hook input priority -300; policy drop; }; }"
"""For a pod that is as if it, and its host, were gone."""
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)


def expose(node: Cluster, number: int, pod: Pod) -> None:
    """A Service of this number with one endpoint on the node."""
    service = make_service(f"moved-{number}", *cluster_ips(number))
    node.manifests.put(*make_slices(service, [(pod.addresses, NODE)], target_port=TARGET_PORT), service)
    program_again(node)


@FAMILIES
@pytest.mark.parametrize("answered", [True, False], ids=["established", "not yet answered"])
def test_a_connection_to_an_endpoint_that_is_gone(node: Cluster, family: Family, answered: bool) -> None:
    """It hangs until its client gives up; what the line tells to do makes the client know at once."""
    world = node.world
    number = 20 + 2 * list(Family).index(family) + answered
    address = of_family(family, cluster_ips(number))
    connection = ("caller", address, "tcp")
    client = world["caller"].address(family)
    world.add_pod(NODE, OLD).serve(TARGET_PORT)
    if not answered:
        world.nft(OLD.name, SILENT)
    expose(node, number, OLD)
    with world["caller"].hold(address, 80, timeout=SILENCE_SECONDS) as held:
        assert (held.opened.only.failure is None) is answered
        if answered:
            assert "as far as is known" not in first_line(world, *connection)[0]
            world.nft(OLD.name, SILENT)
        expose(node, number, Pod("web-0", world["web-0"].addresses))
        if answered:
            assert held.ask().only.failure is Failure.TIMEOUT
        assert works(world, *connection, read_with_retries=True)
        gone = endpoint_text(of_family(family, OLD.addresses), TARGET_PORT)
        says = (
            f"a connection of {client} still goes to {gone}, where no new connection would go, and got no answer for "
        )
        line = awaited(node, connection, says)
        assert line.startswith("arrives: ")
        world.run(NODE, line.rpartition(": ")[2].split())
        assert "as far as is known" not in first_line(world, *connection)[0]
        if answered:
            assert awaited_end(held) in {Failure.RESET, Failure.CLOSED}
    world.remove_pod(OLD.name)


def awaited_end(held: Holding) -> Failure | None:
    """What a connection that hung ends with, when its client's kernel sends the next time."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (failure := held.ask().only.failure) is Failure.TIMEOUT:
        assert time.monotonic() < end
    return failure


def awaited(node: Cluster, connection: tuple[str, str, str], says: str) -> str:
    """The first line of a trace that says something; between packets that are sent again it does not."""
    end = time.monotonic() + PATIENCE_SECONDS
    while says not in (line := first_line(node.world, *connection)[0]):
        assert time.monotonic() < end, line
        time.sleep(0.2)
    return line
