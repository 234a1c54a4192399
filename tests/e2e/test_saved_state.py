"""A node that boots while no API server answers serves what it knew last, and follows as soon as one answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_restarts import uninterrupted
from tests.harness.api_cluster import ApiCluster, Tenant, all_answering, answered_by, answering
from tests.harness.cluster import NODE
from tests.harness.stopwatch import allowed
from tests.harness.warm_start import WarmLauncher

SERVED_SECONDS = 2.0
"""From the start of the process until everything is programmed."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "last"


@pytest.fixture
def web(shaken: ApiCluster, shaken_tenant: Tenant, file: Path) -> Iterator[tuple[str, ...]]:
    """The addresses of a Service with web-0 and web-1, in a cluster whose agent saves its state."""
    for pod in ("web-0", "web-1"):
        shaken_tenant.run_pod(pod)
    shaken_tenant.expose("web")
    shaken.start_agent("--snapshot", str(file))
    addresses = shaken_tenant.cluster_ips("web")
    shaken.agent.wait_until(answered_by(shaken, addresses, "web-0", "web-1"), "the service")
    yield addresses
    if not shaken.server.running:
        shaken.restart_server()


def power_cut(cluster: ApiCluster, warm: WarmLauncher) -> None:
    """Ends the agent and the API server, and leaves nothing of the agent in the kernel."""
    cluster.agent.stop()
    cluster.server.kill()
    assert warm.command(cluster.world.namespace(NODE), ("cleanup",)).returncode == 0


def boot(cluster: ApiCluster) -> int:
    """Starts the agent as it was started before. Returns how many lines it had printed until then."""
    printed = len(cluster.agent.lines)
    cluster.agent.restart()
    return printed


def test_a_node_that_boots_without_a_server_serves_what_it_knew(
    shaken: ApiCluster, shaken_tenant: Tenant, web: tuple[str, ...], file: Path, warm_launcher: WarmLauncher
) -> None:
    def output(*arguments: str) -> str:
        return warm_launcher.command(shaken.world.namespace(NODE), arguments).stdout

    def explained() -> str:
        return output("explain", f"{shaken_tenant.name}/web", "--no-probe")

    power_cut(shaken, warm_launcher)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not answering(shaken, web) & {"web-0", "web-1"}, "control: nothing is left"

    printed = boot(shaken)
    shaken.agent.wait_for_line(" ready: ", after=printed, seconds=allowed(SERVED_SECONDS))
    assert all_answering(shaken, web) == {"web-0", "web-1"}
    assert explained().startswith("impaired: what this node knows of it may be outdated, because API ")
    assert "API server: it has not listed EndpointSlice, Node, Service, ServiceCIDR since the start" in explained()
    assert "NotListedSinceStart" in output("problems")

    with uninterrupted(shaken, web, "web-0", "web-1"):
        shaken.restart_server()
        shaken.agent.wait_until(lambda: explained().startswith("healthy: 4 of 4 endpoints used"), "the server's lists")
    shaken_tenant.run_pod("web-2")
    shaken.changed().shows(answered_by(shaken, web, "web-0", "web-1", "web-2"), "the new pod")


def test_a_damaged_state_is_not_used(
    shaken: ApiCluster, web: tuple[str, ...], file: Path, warm_launcher: WarmLauncher
) -> None:
    power_cut(shaken, warm_launcher)
    file.write_bytes(file.read_bytes()[:-1])

    printed = boot(shaken)
    shaken.agent.wait_for_line("saved state not used: .* is damaged", after=printed)
    assert not answering(shaken, web) & {"web-0", "web-1"}
    shaken.restart_server()
    shaken.agent.wait_for_line(" ready: ", after=printed)
    assert all_answering(shaken, web) == {"web-0", "web-1"}
