"""docs/replace-kube-proxy.md, executed literally in a real cluster, under connections: every command of it, in its order."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent import __version__
from tests.harness.documented_commands import run_by
from tests.harness.kubernetes import images, kube_proxy
from tests.harness.kubernetes.cluster import CONTROL, Cluster
from tests.harness.kubernetes.release import Release

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "dist" / f"nodeagent-{__version__}-amd64.tar"
LOAD = Path(__file__).with_name("load.py")
ECHO = Path(__file__).with_name("echo.yaml").read_text()
COMMAND_SECONDS = 900
SERVICE = ("10.96.0.50", 80)
NODE_PORTS = (("192.168.0.11", 30080), ("192.168.0.12", 30080))

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
]


def blocks() -> list[tuple[str, bool]]:
    """The commands of each block of the tutorial, and whether they are for each node."""
    found = run_by("tests/takeover/test_tutorial.py", "docs/replace-kube-proxy.md")
    return [(block.commands, "ctr " in block.commands) for block in found]


def agnhost_of(archive: Path) -> str:
    """The name of the image with agnhost, as this release's tests call it."""
    with tarfile.open(archive) as files:
        manifest = files.extractfile("manifest.json")
        assert manifest is not None
        tags = [tag for image in json.load(manifest) for tag in image["RepoTags"]]
    return str(next(tag for tag in tags if "/agnhost:" in tag))


@pytest.fixture(params=["iptables", "nftables"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes with kube-proxy as kubeadm installs it, and a Service to connect to."""
    release = Release.of_environment()
    tests = images.make(release)
    archives = [tests, kube_proxy.image(release)]
    echo = ECHO.replace("registry.k8s.io/e2e-test-images/agnhost:AGNHOST", agnhost_of(tests))
    with Cluster(release, archives, count=2) as made:
        made.kubectl("apply", "-f", "-", stdin=kube_proxy.manifests(made.api_server, request.param))
        made.kubectl("apply", "-f", "-", stdin=echo)
        made.kubectl("rollout", "status", "deployment/echo", "--timeout=180s", seconds=200)
        made.kubectl("-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=180s", seconds=200)
        for name, servers in ((CONTROL, NODE_PORTS), *((node.name, (SERVICE,)) for node in made.nodes)):
            for server in servers:
                until_served(made, name, *server)
        yield made


def until_served(cluster: Cluster, client: str, address: str, port: int) -> None:
    """kube-proxy's pods are Ready before they have programmed anything."""
    connect = ["timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
    cluster.wait_until(lambda: cluster.world.run(client, connect, check=False).returncode == 0, f"{address}:{port}")


def shown(server: tuple[str, int]) -> str:
    return f"{server[0]}:{server[1]}"


def test_every_command_of_the_tutorial_works_and_no_connection_fails(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / ARCHIVE.name).symlink_to(ARCHIVE)
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    loads = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for command in (
            *(node.command(sys.executable, str(LOAD), shown(SERVICE)) for node in cluster.nodes),
            cluster.command(sys.executable, str(LOAD), *map(shown, NODE_PORTS)),
        )
    ]
    try:
        for commands, on_each_node in blocks():
            if on_each_node:
                for node in cluster.nodes:
                    node.run("bash", "-euc", f"cd {tmp_path}\n{commands}")
                continue
            command = cluster.command("bash", "-euc", commands)
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env=environment,
                text=True,
                capture_output=True,
                check=False,
                timeout=COMMAND_SECONDS,
            )
            print(f"$ {commands}{done.stdout}{done.stderr}")
            assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"
    finally:
        reports = []
        for load in loads:
            reports.append(load.communicate(timeout=60)[0])
    for report in map(json.loads, reports):
        print(report)
        assert report["opened"] > 100
        assert (report["failed"], report["broken"]) == (0, 0), report["failures"]
