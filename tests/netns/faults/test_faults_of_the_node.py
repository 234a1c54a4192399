"""A fault is planted where a connection works, and breaks it: the first line of `explain` or `check` names it.

`nodeagent problems` and the figure that its alert reads have it within ten seconds where it is a condition that the agent watches. After
the cure everything is quiet again, which is the control of the next one.
"""

import time

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import Told, wait_for
from tests.netns.faults.scenes import HOSTED_PORT, OF_ROUTES, OF_RULES, VIP, Connection, Fault

pytestmark = pytest.mark.kernel

BRIDGE = NO_BRIDGE
SILENCE_SECONDS = 0.4
LATEST_SECONDS = 10.0
PATIENCE_SECONDS = 20.0
SERVICES = {
    "web": ("web-0", 0),
    "far": ("far-0", 0),
    "hosted": (NODE, 0),
    "balanced": ("web-1", 0),
    "far6": ("far-0", 1),
}
"""Each with one endpoint, of the first family or the second."""


@pytest.fixture(scope="module")
def told(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> Told:
    told = Told(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    world = told.world
    world.write_sysctls(NODE, UNTHROTTLED)
    for pod in ("web-0", "web-1", "far-0"):
        world[pod].serve(TARGET_PORT)
    world[NODE].serve(HOSTED_PORT)
    homes = {"far-0": "node-b"}
    for number, (name, (member, family)) in enumerate(SERVICES.items(), start=1):
        balancer = (VIP,) if name == "balanced" else ()
        service = make_service(name, cluster_ips(number)[family], load_balancer_ips=balancer)
        port = HOSTED_PORT if member == NODE else TARGET_PORT
        place = (world[member].addresses[family],)
        cluster.manifests.put(*make_slices(service, [(place, homes.get(member, NODE))], target_port=port), service)
    told.start()
    return told


def works(told: Told, connection: Connection, seconds: float = SILENCE_SECONDS) -> bool:
    client, address, protocol = connection
    return told.world[client].ask(address, 80, protocol, timeout=seconds).only.failure is None


def first_line(told: Told, *command: str) -> tuple[int, str]:
    done = told.run(*command, "--socket", str(told.socket))
    return done.returncode, done.stdout.partition("\n")[0]


def problems(told: Told) -> str:
    return told.run("problems", "--socket", str(told.socket)).stdout


def figure(told: Told, reason: str) -> bool:
    """Whether the figure that alerts read has a problem of this reason."""
    scraped = told.world.run(NODE, ["curl", "--silent", "http://127.0.0.1:10249/metrics"]).stdout
    return f'nodeagent_problems{{reason="{reason}"}} 1' in scraped


def is_quiet(told: Told, fault: Fault) -> bool:
    code, line = first_line(told, *fault.command)
    return code == 0 and line.startswith("healthy") and ";" not in line


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in (OF_ROUTES | OF_RULES).items()])
def test_a_fault_is_named_in_the_first_line(told: Told, fault: Fault) -> None:
    assert works(told, fault.breaks, PATIENCE_SECONDS)
    wait_for(lambda: is_quiet(told, fault), lambda: f"quiet: {first_line(told, *fault.command)}")
    told.world.run(fault.where, ["sh", "-ec", fault.plant])
    try:
        assert not works(told, fault.breaks)
        code, line = first_line(told, *fault.command)
        assert line.startswith(fault.verdict), line
        for text in fault.says:
            assert text in line, line
        assert code == (0 if line.startswith("healthy") else 1)
        if fault.problem:
            begun = time.monotonic()
            wait_for(lambda: fault.problem in problems(told), lambda: problems(told))
            assert time.monotonic() - begun < LATEST_SECONDS
            assert figure(told, fault.problem)
    finally:
        told.world.run(fault.where, ["sh", "-c", fault.cure])
    told.world.run(NODE, ["conntrack", "-F"])
    wait_for(lambda: works(told, fault.breaks), lambda: "it works again")
    wait_for(lambda: is_quiet(told, fault), lambda: f"quiet: {first_line(told, *fault.command)}")
