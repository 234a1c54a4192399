"""Our API server on a host of its own, a real kube-controller-manager beside it, and two Nodes that nobody runs."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.etcd_hosts import Host, hosts
from tests.harness.kube_apiserver import Api, until

CONTROLLERS: Final = (
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "service-cidr-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
)
_RANGES: Final = "10.96.0.0/16,fd00:10:96::/112"
_STARTED: Final = "Proceeding to collect garbage"
_SHORT_HISTORY: Final = ("--history", "30")
"""One spec waits until a place in a list is forgotten."""
_ENDING_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """host: where its processes run, and those that ask it; started: when the controllers run."""

    host: Host
    kubeconfig: Path
    api: Api
    place: Path
    clients: str

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """A request as administrator."""
        return inside(self.clients, partial(self.api.call, method, path, body))

    def complaints(self) -> list[str]:
        """Warnings and errors in the log of the controller-manager."""
        lines = (self.place / "controllers.log").read_text(errors="replace").splitlines()
        return [line for line in lines if line[:1] in ("W", "E", "F") and line[1:5].isdigit()]


@contextmanager
def running(programs: Path, place: Path) -> Iterator[ControlPlane]:
    """All of it, until the block is left."""
    with ExitStack() as stack:
        network = stack.enter_context(hosts(1))
        host = network.members[0]
        kubeconfig = place / "kubeconfig"
        command = [sys.executable, "-m", "nodeagent", "apiserver", "--listen", f"{host.address}:6443"]
        command += ["--data-dir", str(place / "data"), "--storage", "memory", "--kubeconfig-out", str(kubeconfig)]
        stack.enter_context(
            _process(
                host,
                [*command, "--service-cluster-ip-range", _RANGES, *_SHORT_HISTORY, "--enable-garbage-collector"],
                place / "server.log",
            )
        )
        until(kubeconfig.exists, f"our server does not start, see {place / 'server.log'}")
        document = yaml.safe_load(kubeconfig.read_text())
        api = Api(document["clusters"][0]["cluster"]["server"], document["users"][0]["user"]["token"])
        plane = ControlPlane(host, kubeconfig, api, place, network.clients)
        for number in (1, 2):
            _declare_node(plane, number)
        key = place / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        arguments = [str(programs / "kube-controller-manager"), "--kubeconfig", str(kubeconfig)]
        arguments += ["--controllers", ",".join(CONTROLLERS), "--bind-address", "127.0.0.1"]
        arguments += ["--service-account-private-key-file", str(key)]
        arguments += ["--root-ca-file", str(place / "data" / "pki" / "ca.crt")]
        log = place / "controllers.log"
        stack.enter_context(_process(host, arguments, log))
        until(lambda: _STARTED in log.read_text(), f"the controllers do not start, see {log}")
        yield plane


def _declare_node(plane: ControlPlane, number: int) -> None:
    name = f"node-{number}"
    node = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}
    status, document = plane.call("POST", "/api/v1/nodes", node)
    assert status == 201, document
    addresses = [{"type": "InternalIP", "address": f"198.51.100.{number}"}, {"type": "Hostname", "address": name}]
    conditions = [{"type": "Ready", "status": "True", "reason": "Declared", "message": ""}]
    document["status"] = {"addresses": addresses, "conditions": conditions}
    status, document = plane.call("PUT", f"/api/v1/nodes/{name}/status", document)
    assert status == 200, document


@contextmanager
def _process(host: Host, command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*host.prefix, *command], stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
