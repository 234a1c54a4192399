"""What a process in the agent's container may do, as the DaemonSet runs it in a real cluster: its work, and nothing to the node."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent import __version__
from tests.conformance.serving_cluster import serving_cluster
from tests.harness.kubernetes.cluster import Cluster

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "dist" / f"nodeagent-{__version__}-amd64.tar"
PROBE = ROOT / "tests" / "boot" / "container" / "sandbox_probe.py"
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
    pytest.mark.skipif(not IMAGE.exists(), reason="make image has not made the image"),
]
WORK = {
    "write to the state directory",
    "open a netlink socket",
    "open an IPv6 socket",
    "program nftables",
    "bind a low port",
}
HARMLESS = {
    "become root": "it is root of the container, without root's capabilities",
    "change an owner": "to root, which owns the directory already",
    "open a vsock": "the default profile of containerd 1.6 allows it; nothing listens there but on a virtual machine's host",
    "write code and run it": "Kubernetes has no setting that forbids it",
}
REFUSED = {os.strerror(number) for number in (errno.EPERM, errno.EACCES, errno.EROFS)}
"""By a capability, an access right or a file system; of the rest the container has nothing that could be refused."""
TO_THE_NODE = {
    "write another sysctl",
    "mount",
    "make a device",
    "load a module",
    "load a program into the kernel",
    "join other mounts",
    "set the clock",
    "name the machine",
    "open a packet socket",
    "open a raw socket",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving_cluster(IMAGE, tmp_path_factory.mktemp("overlay")) as cluster:
        yield cluster


def test_a_sandbox_can_do_its_work_and_nothing_to_the_node(cluster: Cluster) -> None:
    within = ("-n", "kube-system", "exec", "-i", "daemonset/nodeagent", "-c", "nodeagent", "--", "python3", "-")
    found = json.loads(cluster.kubectl(*within, stdin=PROBE.read_text()))

    assert {name for name, outcome in found.items() if outcome == "done"} == WORK | HARMLESS.keys(), found
    assert {name: found[name] for name in TO_THE_NODE if found[name] not in REFUSED} == {}
