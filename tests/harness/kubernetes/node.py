"""A node: kubelet and containerd in namespaces of their own, which end with the node's first process."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeagent.lab.net.namespace_process import Launcher, Running
from nodeagent.lab.net.network_namespaces import DIRECTORY, LabError
from nodeagent.lab.net.topology import Node as Place
from tests.harness.kubernetes import control_groups
from tests.harness.kubernetes.network_plugin import NetworkPlugin
from tests.harness.kubernetes.release import PLUGINS, Release
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.world import World

INIT = Path(__file__).with_name("node_init.sh")
SOCKET = "/run/containerd/containerd.sock"
PAUSE = "registry.k8s.io/pause:3.10.2"
CLUSTER_DNS = "10.96.0.10"
NAMESPACES = ("--mount", "--pid", "--mount-proc", "--uts", "--ipc", "--cgroup")
MOVE = 'for group in $1; do echo $$ >"$group/cgroup.procs"; done; shift; exec "$@"'


class NodeLauncher(Launcher):
    """Starts the first process of a node: in these control groups, and the roots of its namespaces are there."""

    def __init__(self, group: str) -> None:
        self._group = group

    def start(self, namespace: str, argv: Sequence[str], environment: Mapping[str, str], output: int) -> Running:
        """The kernel kills it, and with it the whole node, when the thread that started it ends."""
        groups = [hierarchy / self._group for hierarchy in control_groups.hierarchies()]
        for group in groups:
            _make(group)
        alone = ["unshare", *NAMESPACES, "--fork", "--kill-child", *argv]
        move = ["sh", "-ec", MOVE, "sh", " ".join(map(str, groups)), *alone]
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={DIRECTORY / namespace}", *move],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


class Node:
    """One of a cluster, with its files in `directory`. Raises LabError."""

    def __init__(self, world: World, place: Place, directory: Path, cluster: str) -> None:
        self.name = place.name
        self.addresses = place.addresses
        self.pod_cidrs = place.pod_cidrs
        self.directory = directory
        self.namespace = world.namespace(place.name)
        self._group = control_groups.group_name(os.getpid(), cluster, place.name)
        self._world = world
        self._process: AgentProcess | None = None

    def prepare(self, release: Release, kubeconfig: Path, plugin: NetworkPlugin) -> None:
        """Write what its programs read."""
        (self.directory / "cni").mkdir(parents=True)
        configuration = plugin.configuration(self.pod_cidrs)
        (self.directory / "cni" / "10-pods.conflist").write_text(json.dumps(configuration, indent=1))
        (self.directory / "containerd.toml").write_text(_containerd(self.directory))
        (self.directory / "kubelet.yaml").write_text(json.dumps(_kubelet(self.directory), indent=1))
        flags = {
            "kubeconfig": kubeconfig,
            "config": self.directory / "kubelet.yaml",
            "root-dir": self.directory / "kubelet-files",
            "cert-dir": self.directory / "certificates",
            "hostname-override": self.name,
            "node-ip": ",".join(self.addresses),
            "node-labels": f"topology.kubernetes.io/zone=zone-of-{self.name}",
        }
        start = self.directory / "kubelet"
        options = " ".join(f"--{name}={value}" for name, value in flags.items())
        start.write_text(f"#!/bin/sh\nexec {release.find('kubelet')} {options}\n")
        start.chmod(0o755)

    def start(self) -> None:
        """Its first process, with containerd and kubelet; containerd answers when this returns."""
        argv = [str(INIT), self.name, str(self.directory)]
        self._process = self._world.start(self.name, argv, launcher=NodeLauncher(self._group))
        self._process.wait_for_line("has started")
        self._process.wait_until(lambda: self.run("ctr", "-a", SOCKET, "version", check=False) == 0, "containerd")

    def cut_power(self) -> None:
        """What it has on disk stays, all else goes."""
        self.kill()
        self._world.cut_power(self.name)

    def boot(self) -> None:
        """After its power was cut; containerd answers when this returns."""
        self._world.give_power(self.name)
        self.start()

    def kill(self) -> None:
        """All its processes and mounts go. Its links and rules stay, for they are the world's."""
        if self._process is not None:
            self._process.kill()
        control_groups.remove_group(self._group)

    def command(self, *argv: str) -> list[str]:
        """What runs a program on the node, as root beside kubelet."""
        return ["nsenter", "--target", self._first_process(), "--all", "--", *argv]

    def run(self, *argv: str, check: bool = True) -> int:
        """The exit status of a program on the node, to its end. Raises LabError when it fails, unless `check` is off."""
        return self._run(argv, check=check).returncode

    def output(self, *argv: str) -> str:
        """What a program on the node prints. Raises LabError when it fails."""
        return self._run(argv, check=True).stdout

    def _run(self, argv: Sequence[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.command(*argv), capture_output=True, text=True, check=False, timeout=300)
        if check and done.returncode:
            raise LabError(f"{' '.join(argv)} on {self.name} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def run_daemon(self, name: str, *argv: str) -> None:
        """Start a program that ends with the node at the latest; what it prints is in a file of its name."""
        with (self.directory / f"{name}.log").open("ab") as log:
            subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command(*argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def import_image(self, archive: Path) -> None:
        """Make the images of an archive known to its containerd."""
        self.run("ctr", "-a", SOCKET, "-n", "k8s.io", "image", "import", str(archive.resolve()))

    def _first_process(self) -> str:
        """Its number out here."""
        if self._process is None or not self._process.running:
            raise LabError(f"{self.name} is not running")
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            raise LabError(f"{self.name} has not started")
        return children[0]


def _make(group: Path) -> None:
    group.mkdir(exist_ok=True)
    # Version 1: a group without processors and memory takes no processes.
    for file in ("cpuset.cpus", "cpuset.mems"):
        if (group / file).exists() and not (group / file).read_text().strip():
            (group / file).write_text((group.parent / file).read_text())


def _containerd(directory: Path) -> str:
    """Without the right CAP_SYS_RESOURCE, as in containers, no score of the out-of-memory killer can be lowered."""
    return f"""version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def _kubelet(directory: Path) -> dict[str, Any]:
    """For a node that is a part of a machine: it neither divides the machine's memory nor guards its disk."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "clusterDNS": [CLUSTER_DNS],
        "clusterDomain": "cluster.local",
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "volumePluginDir": f"{directory}/volume-plugins",
    }
