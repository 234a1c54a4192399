"""A node of a world that is a machine of its own: Debian or Ubuntu with systemd, the package installed, pods around it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import DIRECTORY
from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, TARGET_PORT, Cluster
from tests.harness.uninterrupted import PODS, SHOP
from tests.harness.worlds.topology import POD_CIDRS
from tests.harness.worlds.world import World

from .machine import Machine

ROOT = Path(__file__).parents[3]
TREES = {"deb12": "debian-12", "deb13": "debian-13", "ubuntu24.04": "ubuntu-24.04"}
RELEASES = {name: ROOT / ".tools" / "boot" / TREES[name] for name in os.environ.get("RELEASES", "deb12 deb13").split()}
"""As the packages are called after them; with the tree that a machine boots from."""
TREE = ROOT / ".tools" / "boot" / TREES["deb12"]
PACKAGES = ROOT / "build" / "boot"
MANIFESTS = "/manifests"
CONFIG = "/etc/nodeagent/nodeagent.yaml"
AGENT = "nodeagent.service"


@dataclass(frozen=True)
class Node:
    """The machine, and the cluster it is the node of: `cluster.manifests` is what the machine sees at MANIFESTS."""

    machine: Machine
    cluster: Cluster
    release: str

    def install(self, revision: int) -> str:
        """Install or upgrade the package; what dpkg prints."""
        return self.machine.run("dpkg", "--install", f"/packages/{package(revision, self.release).name}").stdout

    def configure(self, *, listen: tuple[str, ...] = (), **traffic: str) -> None:
        """Write a configuration that reads the cluster's manifests. listen: where names are answered, if they are."""
        places = "".join(f'\n  - "{place}"' for place in listen)
        names = f"dns:\n  enabled: true\n  upstreams: [127.0.0.1:9]\n  listen:{places}\n" if listen else ""
        cidrs = "".join(f"\n  - {cidr}" for cidr in POD_CIDRS)
        lines = "".join(f"\n  {key}: {value}" for key, value in traffic.items())
        self.machine.write(
            CONFIG,
            "apiVersion: nodeagent.io/v1alpha1\n"
            "kind: NodeAgentConfiguration\n"
            f"source:\n  manifests: {MANIFESTS}\n"
            f"node:\n  name: {NODE}\n"
            f"traffic:\n  clusterCIDRs:{cidrs}{lines}\n{names}",
        )

    def status_text(self) -> str:
        """What the agent says of itself in `systemctl status`."""
        return self.machine.show(AGENT, "StatusText")


def package(revision: int, release: str = "deb12") -> Path:
    """`make test-boot` builds each release's package twice, as two revisions."""
    (found,) = PACKAGES.glob(f"nodeagent_*-{revision}~{release}_*.deb")
    return found


@contextmanager
def booted(release: str, place: Path, binds: Mapping[Path, str]) -> Iterator[Node]:
    """A machine without the package, in a world whose service `shop` has three pods. place: for the manifests and the disk."""
    manifests, disk = place / "manifests", place / "machine"
    for directory in (manifests, disk):
        directory.mkdir()
    manifests.chmod(0o755)
    with ExitStack() as stack:
        world = stack.enter_context(World())
        cluster = Cluster(world, manifests)
        for pod in PODS:
            world[pod].serve(TARGET_PORT, Protocol.TCP)
        cluster.expose("shop", *SHOP, pods=PODS)
        network = DIRECTORY / world.namespace(NODE)
        all_binds = {manifests: MANIFESTS, PACKAGES: "/packages", **binds}
        machine = stack.enter_context(Machine(RELEASES[release], disk, network, binds=all_binds))
        yield Node(machine, cluster, release=release)


@pytest.fixture(scope="module", params=RELEASES)
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A machine without the package, in a world whose service `shop` has three pods."""
    with booted(str(request.param), tmp_path_factory.mktemp("node"), {}) as found:
        yield found


@pytest.fixture(scope="module")
def serving(node: Node) -> Node:
    """The machine with the package installed, configured and started."""
    node.install(1)
    node.configure()
    node.machine.systemctl("start", AGENT)
    return node
