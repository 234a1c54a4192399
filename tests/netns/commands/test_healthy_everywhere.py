"""Under each configuration that changes what exists, the first line of every command says that all is well, and it exits 0.

Before the commands, connections are made that work. The control is a Service without endpoints, which `explain` must not call healthy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, TARGET_PORT, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices, service_port
from tests.harness.warm_start import WarmLauncher
from tests.harness.worlds.topology import POD_CIDRS, SERVICE_CIDRS
from tests.netns.commands.following import WatchedNode, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

VIP = ("198.51.100.9", "2001:db8:100::9")
NODE_PORT = 30080
PODS = ("--cluster-cidr", ",".join(POD_CIDRS))
NAMES = ("--dns", "--dns-listen", ",".join(cluster_ips(9)), "--dns-upstreams", "127.0.0.1:9")
KIND = "apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\n"
BOTH = (Family.IPV4, Family.IPV6)


@dataclass(frozen=True)
class Setting:
    """flags: of the agent. families: of what is served. names: whether the node answers them itself. config: of its file, what has no
    flag."""

    flags: Sequence[str]
    families: Sequence[Family] = BOTH
    names: bool = False
    config: str = ""


SETTINGS = {
    "defaults": Setting(PODS),
    "IPv4 only": Setting((*PODS, "--families", "IPv4"), BOTH[:1]),
    "IPv6 only": Setting((*PODS, "--families", "IPv6"), BOTH[1:]),
    "no service interface": Setting((*PODS, "--service-interface=false")),
    "names": Setting((*PODS, *NAMES), names=True),
    "names of IPv4 only": Setting(
        (*PODS, *NAMES[:2], cluster_ips(9)[0], *NAMES[3:], "--families", "IPv4"), BOTH[:1], names=True
    ),
    "names at an address of their own": Setting(
        (*PODS, "--dns", "--dns-listen", "169.254.20.10", *NAMES[3:]), names=True
    ),
    "another service interface": Setting(PODS, config="dataplane: {interfaceName: services9}"),
    "no counters": Setting(PODS, config="dataplane: {counters: false}"),
    "counters of endpoints": Setting(PODS, config="dataplane: {endpointCounters: true}"),
    "sysctls left alone": Setting((*PODS, "--manage-sysctls=false")),
    "plain tables": Setting((*PODS, "--table-ownership", "plain")),
    "owned tables": Setting((*PODS, "--table-ownership", "owned")),
    "no ranges of pods": Setting(()),
    "pods by their bridge": Setting(("--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0")),
    "pods by the names of interfaces": Setting(
        ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cni")
    ),
    "every source rewritten": Setting((*PODS, "--masquerade-all")),
    "ranges of Services": Setting((*PODS, "--service-cidr", ",".join(SERVICE_CIDRS))),
    "node ports at every address": Setting((*PODS, "--nodeport-addresses", "all")),
    "node ports at one range": Setting((*PODS, "--nodeport-addresses", "192.168.0.0/24,2001:db8::/64")),
    "no external IPs": Setting((*PODS, "--external-ips=false")),
    "no metrics, no health": Setting((*PODS, "--metrics-bind-address=", "--healthz-bind-address=")),
}
SERVICES = ("web", "far", "both", "ported", "balanced", "sticky", "local")
VERDICTS = {
    **dict.fromkeys(("check", "explain", "problems"), ("healthy",)),
    "trace": ("arrives: ",),
    "diff": ("same: ",),
    "plan": ("nothing would change",),
    "dns": ("web.default.svc.cluster.local. A: NOERROR", "web.default.svc.cluster.local. AAAA: NOERROR"),
}
"""Command → how its first line begins, where it judges."""


@pytest.fixture(scope="module")
def objects(cluster: Cluster) -> Cluster:
    """Each kind of Service, with endpoints."""
    world = cluster.world
    for pod in ("web-0", "far-0"):
        world[pod].serve(TARGET_PORT)
    homes = {"web-0": NODE, "far-0": "node-b"}
    kinds = {
        "web": (("web-0",), ServiceSpec()),
        "far": (("far-0",), ServiceSpec()),
        "both": (("web-0", "far-0"), ServiceSpec()),
        "ported": (("web-0",), ServiceSpec()),
        "balanced": (("web-0",), ServiceSpec(external_traffic_policy="Local")),
        "sticky": (("web-0",), ServiceSpec(session_affinity="ClientIP")),
        "local": (("web-0",), ServiceSpec(internal_traffic_policy="Local")),
    }
    for number, (name, (pods, spec)) in enumerate(kinds.items(), start=1):
        port = service_port(80, name="http", node_port=NODE_PORT if name == "ported" else 0)
        balancers = VIP if name == "balanced" else ()
        service = make_service(name, *cluster_ips(number), ports=(port,), load_balancer_ips=balancers, spec=spec)
        places = [(world[pod].addresses, homes[pod]) for pod in pods]
        cluster.manifests.put(*make_slices(service, places, target_port=TARGET_PORT), service)
    return cluster


def commands(socket: str, setting: Setting, manifests: str) -> dict[str, tuple[str, ...]]:
    """Each command with what it needs here; `top` needs counters."""
    at = ("--socket", socket)
    asked = cluster_ips(1)[0 if Family.IPV4 in setting.families else 1]
    source = {Family.IPV4: "10.244.1.200", Family.IPV6: "fd00:244:1::c8"}[setting.families[0]]
    return {
        "check": ("check", *at),
        "explain": ("explain", "--probe", *at),
        **{
            f"explain {name}": ("explain", name, *at)
            for name in (SERVICES if setting is SETTINGS["defaults"] else SERVICES[:1])
        },
        "explain by address": ("explain", asked, *at),
        "problems": ("problems", *at),
        "trace": ("trace", source, f"{asked}:80" if ":" not in asked else f"[{asked}]:80"),
        "diff": ("diff", *at),
        "plan": ("plan", "--manifests", manifests, *at),
        **({} if setting is SETTINGS["no counters"] else {"top": ("top", "--once", "--every", "0.1")}),
        **({"dns": ("dns", "web.default", *at)} if setting.names else {}),
        "show": ("show",),
        "journal": ("journal", *at),
        "log-level": ("log-level", *at),
        "bundle": ("bundle", f"{socket}.tar.gz", *at),
        "version": ("version",),
    }


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a name short enough for a socket in it."""
    return tmp_path_factory.mktemp("s")


@pytest.mark.parametrize("name", SETTINGS)
def test_all_is_well(objects: Cluster, warm_launcher: WarmLauncher, directory: Path, name: str) -> None:
    setting = SETTINGS[name]
    watched = WatchedNode(objects, warm_launcher, directory)
    names = make_service("kube-dns", *cluster_ips(9), ports=(service_port(53, Protocol.UDP, name="dns"),))
    is_taken_over = any(address in " ".join(setting.flags) for address in cluster_ips(9))
    if is_taken_over:
        objects.manifests.put(names)
    (directory / "config.yaml").write_text(KIND + setting.config)
    file = (f"--config={directory / 'config.yaml'}",) if setting.config else ()
    agent = objects.start_agent(*setting.flags, *file, f"--socket={watched.socket}")
    try:
        for family in setting.families:
            asked = watched.world["caller"].ask(cluster_ips(1)[family is Family.IPV6], 80).only
            assert asked.failure is None
        wait_for(lambda: "healthy" in watched.run("problems", "--socket", str(watched.socket)).stdout, lambda: name)
        if is_taken_over:
            assert watched.explain("kube-dns") == (0, "healthy: this node answers its names itself")
        wrong = {}
        for command, arguments in commands(str(watched.socket), setting, str(objects.manifests.path)).items():
            done = watched.run(*arguments)
            line = (done.stdout or done.stderr).partition("\n")[0]
            verdict = VERDICTS.get(command.split()[0], ("",))
            good = line.startswith(verdict)
            if done.returncode or not good or "not known" in line or "as far as" in line:
                wrong[command] = (done.returncode, line)
        assert wrong == {}
    finally:
        agent.stop()
        objects.manifests.remove(names)
        watched.world.run(
            NODE, ["sh", "-c", "nft flush ruleset; ip link del nodeagent0; ip link del services9"], check=False
        )


def test_control_a_service_without_endpoints_is_seen(
    objects: Cluster, warm_launcher: WarmLauncher, directory: Path
) -> None:
    lonely = make_service("lonely", *cluster_ips(8))
    watched = WatchedNode(objects, warm_launcher, directory)
    objects.manifests.put(lonely)
    agent = objects.start_agent(*SETTINGS["defaults"].flags, f"--socket={watched.socket}")
    try:
        done = watched.run("explain", "--socket", str(watched.socket))
        assert done.returncode == 1
        assert done.stdout.startswith("not healthy: 1 of ")
    finally:
        agent.stop()
        objects.manifests.remove(lonely)
        watched.world.run(
            NODE, ["sh", "-c", "nft flush ruleset; ip link del nodeagent0; ip link del services9"], check=False
        )
