"""The API server or the agent goes away and comes back: connections do not notice, and changes are followed again."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.harness.api_cluster import ApiCluster, Tenant, all_answering, answered_by, answering
from tests.harness.cluster import NODE
from tests.harness.lost_packets import PATIENT, nothing_resent
from tests.harness.stopwatch import allowed
from tests.harness.warm_start import WarmLauncher

CLIENTS = ("caller", "outside", NODE)
AWAY_SECONDS = 3.0
"""For how long a process is away."""
BACK_SECONDS = 3.0
"""From the first change that the returned server accepts to the packets that follow it."""
NOTHING_WRITTEN = r"sync done .*elements=0 "


@contextmanager
def uninterrupted(cluster: ApiCluster, addresses: tuple[str, ...], *pods: str) -> Iterator[None]:
    """Connections to these pods, open ones and new ones from everywhere, of which none fails while the block lasts."""
    with ExitStack() as stack:
        members = [cluster.world[client] for client in CLIENTS]
        held = [stack.enter_context(member.hold(a, 80, count=5)) for member in members for a in addresses]
        opened = [[answer.name for answer in holding.opened] for holding in held]
        loads = [stack.enter_context(member.load(a, 80, timeout=PATIENT)) for member in members for a in addresses]
        stack.enter_context(nothing_resent(cluster.world, CLIENTS))
        yield
        assert [[answer.name for answer in holding.ask()] for holding in held] == opened
        reports = [load.stop() for load in loads]
        # If a SYN was sent again and none of these took a second, it was not one of theirs but of another program on the node.
        print("slowest answer of each load, s:", [round(report.slowest, 3) for report in reports])
        assert [report.failures for report in reports] == [{}] * len(loads)
        assert all(set(report.names) >= set(pods) for report in reports)


@pytest.fixture
def web(shaken: ApiCluster, shaken_tenant: Tenant) -> tuple[str, ...]:
    """The addresses of a Service with web-0 and web-1."""
    for pod in ("web-0", "web-1"):
        shaken_tenant.run_pod(pod)
    shaken_tenant.expose("web")
    addresses = shaken_tenant.cluster_ips("web")
    shaken.agent.wait_until(answered_by(shaken, addresses, "web-0", "web-1"), "the service")
    return addresses


@pytest.mark.parametrize("killed", [pytest.param(True, id="kill -9"), pytest.param(False, id="SIGTERM")])
def test_the_server_restarts(shaken: ApiCluster, shaken_tenant: Tenant, web: tuple[str, ...], killed: bool) -> None:
    with uninterrupted(shaken, web, "web-0", "web-1"):
        if killed:
            shaken.server.kill()
        else:
            assert shaken.server.stop() == 0
        time.sleep(AWAY_SECONDS)
        shaken.restart_server()

        shaken_tenant.run_pod("web-2")
        shaken_tenant.expose("second", selector={"app": "web"})
        change = shaken.changed()
        second = shaken_tenant.cluster_ips("second")
        change.shows(answered_by(shaken, web, "web-0", "web-1", "web-2"), "the new pod", within=BACK_SECONDS)
        change.shows(answered_by(shaken, second, "web-0", "web-1", "web-2"), "the new service", within=BACK_SECONDS)
    shaken_tenant.end_pod("web-0")
    shaken.changed().shows(answered_by(shaken, web, "web-1", "web-2"), "one pod less")


def test_the_agent_is_killed_and_restarts(shaken: ApiCluster, web: tuple[str, ...]) -> None:
    with uninterrupted(shaken, web, "web-0", "web-1"):
        for _ in range(2):
            printed = len(shaken.agent.lines)
            shaken.agent.kill()
            time.sleep(AWAY_SECONDS / 2)
            shaken.restart_agent()
            shaken.agent.wait_for_line(NOTHING_WRITTEN, after=printed)


def test_changes_while_the_agent_was_dead_are_caught_up(
    shaken: ApiCluster, shaken_tenant: Tenant, web: tuple[str, ...]
) -> None:
    shaken_tenant.expose("gone")
    gone = shaken_tenant.cluster_ips("gone")
    shaken.agent.wait_until(answered_by(shaken, gone, "web-0", "web-1"), "the second service")
    with uninterrupted(shaken, web, "web-0", "web-1"):
        shaken.agent.kill()
        shaken.api.delete(shaken_tenant.path("services", "gone"))
        shaken_tenant.run_pod("web-2")
        assert all_answering(shaken, gone) == {"web-0", "web-1"}
        shaken.restart_agent()
        assert answering(shaken, gone) == {"timeout"}
        assert all_answering(shaken, web) == {"web-0", "web-1", "web-2"}


def test_an_agent_that_finds_no_server_keeps_the_rules_and_waits(
    shaken: ApiCluster, shaken_tenant: Tenant, web: tuple[str, ...]
) -> None:
    with uninterrupted(shaken, web, "web-0", "web-1"):
        shaken.agent.kill()
        shaken.server.kill()
        printed = len(shaken.agent.lines)
        shaken.agent.restart()
        shaken.agent.wait_for_line("Connection refused", after=printed)
        time.sleep(AWAY_SECONDS)
        shaken.restart_server()
        shaken.agent.wait_for_line(" ready: ", after=printed, seconds=allowed(BACK_SECONDS))
        shaken.agent.wait_for_line(NOTHING_WRITTEN, after=printed)
    shaken_tenant.end_pod("web-0")
    shaken.changed().shows(answered_by(shaken, web, "web-1"), "one pod less")


def test_while_the_server_is_away_the_first_line_of_explain_says_so(
    shaken: ApiCluster, shaken_tenant: Tenant, web: tuple[str, ...], warm_launcher: WarmLauncher
) -> None:
    """Asked where commands look by themselves. The Service works all the time, but who knows whether it should."""

    def first_line() -> str:
        arguments = ("explain", f"{shaken_tenant.name}/web", "--no-probe")
        return warm_launcher.command(shaken.world.namespace(NODE), arguments).stdout.partition("\n")[0]

    assert first_line() == "healthy: 4 of 4 endpoints used"
    shaken.server.kill()
    stale = "impaired: what this node knows of it may be outdated, because API resource "
    shaken.agent.wait_until(lambda: first_line().startswith(stale), "the silence of the server")
    shaken.restart_server()
    shaken.agent.wait_until(lambda: first_line() == "healthy: 4 of 4 endpoints used", "the server's return")
