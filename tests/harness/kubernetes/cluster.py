"""A cluster for as long as a block lasts: processes, namespaces, mounts, control groups and files go with it, also after a crash."""

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from nodeagent.lab.net import bridge_wiring
from nodeagent.lab.net.network_namespaces import DIRECTORY, LabError, is_alive
from nodeagent.lab.net.topology import Node as Place
from nodeagent.lab.net.topology import OutsideHost, Topology
from tests.harness.kubernetes import control_groups
from tests.harness.kubernetes.certificates import ADMINISTRATOR
from tests.harness.kubernetes.control_plane import ControlPlane
from tests.harness.kubernetes.network_plugin import BRIDGE, NetworkPlugin
from tests.harness.kubernetes.node import Node
from tests.harness.kubernetes.release import Release
from tests.harness.worlds.world import World

CONTROL = "control"
CONTROL_ADDRESSES = ("192.168.0.100", "2001:db8::100")
PATIENCE_SECONDS = 120.0
FILES = re.compile(r"nodeagent-kubernetes-(?P<pid>[0-9]+)-[0-9a-f]+")


def topology(count: int, bridge: str) -> Topology:
    """`node-1` and so on, and the host of the control plane, all on one network; a node's pods are 10.244.NUMBER.0/24."""
    nodes = [
        Place(
            f"node-{number}",
            (f"192.168.0.{10 + number}", f"2001:db8::{10 + number}"),
            pod_cidrs=(f"10.244.{number}.0/24", f"fd00:244:{number}::/64"),
            pod_bridge=bridge,
        )
        for number in range(1, count + 1)
    ]
    return Topology(tuple(nodes), (OutsideHost(CONTROL, CONTROL_ADDRESSES),))


class Cluster:
    """`count` nodes whose containerd knows the images of these archives. No proxy and no cluster DNS: add them.

    Any number may exist side by side. Raises LabError.
    """

    def __init__(
        self, release: Release, archives: Iterable[Path], *, count: int = 2, plugin: NetworkPlugin = BRIDGE
    ) -> None:
        release.check()
        self._release = release
        self._archives = tuple(archives)
        self._plugin = plugin
        self._token = secrets.token_hex(3)
        self._ends = ExitStack()
        self._topology = topology(count, plugin.bridge)
        self.nodes: tuple[Node, ...] = ()

    def __enter__(self) -> Self:
        sweep()
        with self._ends:
            self._start()
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _start(self) -> None:
        prefix = f"nodeagent-kubernetes-{os.getpid()}-{self._token}"
        self.directory = Path(tempfile.gettempdir(), prefix)
        self.directory.mkdir(mode=0o755)
        self._ends.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.world = self._ends.enter_context(World(self._topology, bridge_wiring))
        control = ControlPlane(self.world, CONTROL, CONTROL_ADDRESSES[0], self._release, self.directory)
        self.certificates = control.certificates
        self.kubeconfig = self.certificates.client(ADMINISTRATOR, ADMINISTRATOR, "system:masters")
        control.start_server()
        self.wait_until(lambda: self._succeeds("get", "--raw", "/readyz"), "a ready API server")
        control.start_controllers()
        self.nodes = tuple(
            Node(self.world, place, self.directory / place.name, self._token) for place in self._topology.nodes
        )
        for node in self.nodes:
            self._ends.callback(node.kill)
            user = self.certificates.client(node.name, f"system:node:{node.name}", "system:nodes")
            node.prepare(self._release, user, self._plugin)
            node.start()
        with ThreadPoolExecutor() as importing:
            list(importing.map(self._import_images, self.nodes))
        self.wait_until(self._nodes_are_ready, "ready nodes")
        for node in self.nodes:
            self._set_pod_cidrs(node)

    @property
    def api_server(self) -> str:
        """Its URL."""
        return self.certificates.server

    def command(self, *argv: str) -> list[str]:
        """What runs a program where the API server can be reached, outside all nodes."""
        return ["nsenter", f"--net={DIRECTORY / self.world.namespace(CONTROL)}", *argv]

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = PATIENCE_SECONDS) -> str:
        """What it prints, as administrator. Raises LabError when it fails."""
        done = self._kubectl(*arguments, stdin=stdin, seconds=seconds)
        if done.returncode:
            raise LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get` as a document. Raises LabError."""
        document: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return document

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Return when the condition holds. Raises LabError when it does not in time."""
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > ends:
                raise LabError(f"the cluster did not show {what} within {seconds} s; its files: {self.directory}")
            time.sleep(0.2)

    def _kubectl(
        self, *arguments: str, stdin: str = "", seconds: float = PATIENCE_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        command = self.command(str(self._release.find("kubectl")), "--kubeconfig", str(self.kubeconfig), *arguments)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)

    def _succeeds(self, *arguments: str) -> bool:
        return self._kubectl(*arguments).returncode == 0

    def _import_images(self, node: Node) -> None:
        for archive in self._archives:
            node.import_image(archive)

    def _nodes_are_ready(self) -> bool:
        found = self.get("nodes")["items"]
        ready = [
            node
            for node in found
            if {"type": "Ready", "status": "True"}.items()
            <= next((c for c in node["status"]["conditions"] if c["type"] == "Ready"), {}).items()
        ]
        return len(ready) == len(self.nodes)

    def _set_pod_cidrs(self, node: Node) -> None:
        """What controllers of clouds and of kube-controller-manager would do: here the plugin's range is there first."""
        specification = {"spec": {"podCIDR": node.pod_cidrs[0], "podCIDRs": node.pod_cidrs}}
        self.kubectl("patch", "node", node.name, "--patch", json.dumps(specification))


def sweep() -> None:
    """Remove the files and control groups of clusters whose creator is gone; their namespaces are removed by `World`."""
    for path in Path(tempfile.gettempdir()).glob("nodeagent-kubernetes-*"):
        found = FILES.fullmatch(path.name)
        if found and not is_alive(int(found["pid"])):
            shutil.rmtree(path, ignore_errors=True)
    control_groups.sweep()
