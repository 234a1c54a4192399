"""Conditions of the node are watched while the agent runs: `nodeagent problems` has them, and drops them after the cure."""

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import Told, wait_for

BRIDGE = NO_BRIDGE
FORWARDING = "/proc/sys/net/ipv4/ip_forward"


@pytest.fixture
def told(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> Told:
    told = Told(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    told.start()
    return told


def problems(told: Told) -> str:
    return told.run("problems", "--socket", str(told.socket)).stdout


def test_forwarding_that_somebody_turns_off(told: Told) -> None:
    wait_for(lambda: problems(told).startswith("healthy: no problems\n"), lambda: problems(told))
    told.world.write_sysctls(NODE, {FORWARDING: "0"})
    wait_for(lambda: "sysctl -w net.ipv4.ip_forward=1" in problems(told), lambda: problems(told))
    assert problems(told).startswith("not healthy: sysctl net.ipv4.ip_forward, because ")
    told.world.write_sysctls(NODE, {FORWARDING: "1"})
    wait_for(lambda: problems(told).startswith("healthy: no problems\n"), lambda: problems(told))
