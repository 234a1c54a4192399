"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on a host of the world, with ordinary certificates."""

from pathlib import Path

from nodeagent.runtime.certificates import AUTHORITY
from tests.harness.kubernetes.certificates import ACCOUNTS, SERVER, Certificates
from tests.harness.kubernetes.release import Release
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import POD_CIDRS, SERVICE_CIDRS
from tests.harness.worlds.world import World

ISSUER = "https://kubernetes.default.svc.cluster.local"
NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
FIRST_ADDRESSES = ("10.96.0.1", "fd00:10:96::1")
"""Of the ranges of ClusterIPs: the Service `kubernetes` has them."""
SERVICE_CIDR = ",".join(SERVICE_CIDRS)


class ControlPlane:
    """On the host `member` at `address`: first the API server, and when that is ready its clients. Raises LabError."""

    def __init__(self, world: World, member: str, address: str, release: Release, directory: Path) -> None:
        self._world = world
        self._member = member
        self._address = address
        self._release = release
        self._directory = directory
        self.certificates = Certificates(directory / "certificates", f"https://{address}:6443")
        addresses = (address, "127.0.0.1", *FIRST_ADDRESSES)
        self.certificates.make([*(f"IP:{one}" for one in addresses), *(f"DNS:{name}" for name in NAMES)])

    def start_server(self) -> None:
        """etcd and the API server, which is not ready yet when this returns."""
        self._run("etcd", **{"data-dir": self._directory / "etcd", "log-level": "warn", "unsafe-no-fsync": "true"})
        self._run("kube-apiserver", **self._server_flags()).wait_for_line("Serving securely")

    def start_controllers(self) -> None:
        """They end where the API server does not know their rights yet: it makes these before it says that it is ready."""
        manager = self._run("kube-controller-manager", **self._controller_flags())
        kubeconfig = self.certificates.client("scheduler", "system:kube-scheduler")
        scheduler = self._run("kube-scheduler", kubeconfig=kubeconfig, **{"leader-elect": "false"})
        manager.wait_for_line("Starting.*controller")
        scheduler.wait_for_line("Serving securely")

    def _run(self, program: str, **flags: object) -> AgentProcess:
        argv = [str(self._release.find(program)), *(f"--{name}={value}" for name, value in flags.items())]
        return self._world.start(self._member, argv)

    def _server_flags(self) -> dict[str, object]:
        certificates = self.certificates
        return {
            "etcd-servers": "http://127.0.0.1:2379",
            "service-cluster-ip-range": SERVICE_CIDR,
            "service-account-key-file": certificates.certificate(ACCOUNTS),
            "service-account-signing-key-file": certificates.key(ACCOUNTS),
            "service-account-issuer": ISSUER,
            "authorization-mode": "Node,RBAC",
            "bind-address": "0.0.0.0",
            "advertise-address": self._address,
            "secure-port": 6443,
            "tls-cert-file": certificates.certificate(SERVER),
            "tls-private-key-file": certificates.key(SERVER),
            "client-ca-file": certificates.certificate(AUTHORITY),
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
        }

    def _controller_flags(self) -> dict[str, object]:
        certificates = self.certificates
        return {
            "kubeconfig": certificates.client("controller-manager", "system:kube-controller-manager"),
            "root-ca-file": certificates.certificate(AUTHORITY),
            "service-account-private-key-file": certificates.key(ACCOUNTS),
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "cluster-cidr": ",".join(POD_CIDRS),
            "service-cluster-ip-range": SERVICE_CIDR,
            "cluster-signing-cert-file": certificates.certificate(AUTHORITY),
            "cluster-signing-key-file": certificates.key(AUTHORITY),
        }
