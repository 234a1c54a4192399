"""Tokens and the cluster's authority change while the agent runs, beside a real kube-apiserver: it goes on, without a restart."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.runtime.certificates import AUTHORITY
from tests.harness.kubernetes.certificates import SERVER, Certificates
from tests.harness.kubernetes.cluster import CONTROL, CONTROL_ADDRESSES, Cluster
from tests.harness.kubernetes.release import Release
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
]
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "nodeagent"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "ServiceAccount", "name": "nodeagent", "namespace": "kube-system"}],
}


class PodFiles:
    """The token and the authority as a pod has them, and a kubeconfig that names them."""

    def __init__(self, directory: Path, server: str) -> None:
        self.token, self.authority = directory / "token", directory / "ca.crt"
        self.kubeconfig = directory / "kubeconfig"
        document = {
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": str(self.authority)}}],
            "users": [{"name": "u", "user": {"tokenFile": str(self.token)}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig.write_text(json.dumps(document))

    @staticmethod
    def replace(path: Path, text: str) -> None:
        """At once, as the kubelet does."""
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)


class Followed:
    """An agent beside a control plane without nodes."""

    def __init__(self, cluster: Cluster, files: PodFiles) -> None:
        self.cluster, self.files = cluster, files
        self._number = 0
        self.agent: AgentProcess | None = None

    def start(self) -> None:
        flags = ("--kubeconfig", str(self.files.kubeconfig), "--node-name", "node-1", "--cluster-cidr", "10.244.0.0/16")
        self.agent = self.cluster.world.start(CONTROL, [*AGENT, "run", *flags])
        self.agent.wait_for_line(" ready: ", seconds=120)

    def follows(self) -> None:
        """Wait until a Service of this moment is programmed."""
        self._number += 1
        name = f"web-{self._number}"
        self.cluster.kubectl("create", "service", "clusterip", name, "--tcp=80")
        self.cluster.wait_until(lambda: f"default/{name}" in self._shown(), f"{name} in the kernel")

    def break_connections(self) -> None:
        """End those to the API server: what was authenticated and believed before counts no more."""
        self.cluster.world.run(CONTROL, ["ss", "--kill", "--tcp", "dport", "=", "6443"])

    def _shown(self) -> str:
        assert self.agent is not None
        assert self.agent.running, self.agent.last_words()
        return self.cluster.world.run(CONTROL, [*AGENT, "show", "--output", "name"], check=False).stdout


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with Cluster(Release.of_environment(), [], count=0) as cluster:
        files = PodFiles(tmp_path, cluster.api_server)
        files.authority.write_bytes(Path(cluster.certificates.certificate(AUTHORITY)).read_bytes())
        cluster.kubectl("create", "serviceaccount", "nodeagent", "--namespace", "kube-system")
        yield Followed(cluster, files)


def token(cluster: Cluster, secret: str) -> str:
    """A token that ends with this Secret, as one of a pod ends with the pod."""
    cluster.kubectl("create", "secret", "generic", secret, "--namespace", "kube-system")
    bound = ("--bound-object-kind", "Secret", "--bound-object-name", secret)
    return cluster.kubectl("create", "token", "nodeagent", "--namespace", "kube-system", *bound)


def test_the_token_changes(followed: Followed) -> None:
    cluster, files = followed.cluster, followed.files
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(ROLE))
    files.replace(files.token, token(cluster, "first"))
    followed.start()
    followed.follows()

    files.replace(files.token, token(cluster, "second"))
    cluster.kubectl("delete", "secret", "first", "--namespace", "kube-system")
    followed.break_connections()
    followed.follows()


def test_a_token_that_ended_is_refused_and_the_next_one_heals_it(followed: Followed) -> None:
    """The control: without another token the agent learns nothing more."""
    cluster, files = followed.cluster, followed.files
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(ROLE))
    files.replace(files.token, token(cluster, "first"))
    followed.start()
    cluster.kubectl("delete", "secret", "first", "--namespace", "kube-system")
    followed.break_connections()
    assert followed.agent is not None
    followed.agent.wait_for_line("401|Unauthorized", seconds=120)

    files.replace(files.token, token(cluster, "second"))
    followed.follows()


def test_the_authority_of_the_cluster_changes(followed: Followed) -> None:
    """As kubeadm's documents have it: both are trusted, then the server shows the new one's, then the old one is forgotten."""
    cluster, files = followed.cluster, followed.files
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(ROLE))
    files.replace(files.token, token(cluster, "first"))
    followed.start()
    old, other = files.authority.read_text(), files.authority.parent / "other"
    following = Certificates(other, cluster.api_server)
    following.make([f"IP:{CONTROL_ADDRESSES[0]}"])
    new = Path(following.certificate(AUTHORITY)).read_text()

    files.replace(files.authority, old + new)
    trusted_here = Path(cluster.certificates.certificate(AUTHORITY))
    PodFiles.replace(trusted_here, old + new)  # kubectl's
    followed.break_connections()
    followed.follows()

    for mine, theirs in (
        (cluster.certificates.key(SERVER), following.key(SERVER)),
        (cluster.certificates.certificate(SERVER), following.certificate(SERVER)),
    ):
        Path(mine).write_bytes(Path(theirs).read_bytes())
    cluster.wait_until(lambda: _shows(cluster, new), "the new certificate")
    followed.break_connections()
    followed.follows()

    files.replace(files.authority, new)
    followed.break_connections()
    followed.follows()


def _shows(cluster: Cluster, authority: str) -> bool:
    """Whether who trusts only this authority believes the API server."""
    only = cluster.directory / "only.crt"
    only.write_text(authority)
    argv = [
        "openssl",
        "s_client",
        "-connect",
        f"{CONTROL_ADDRESSES[0]}:6443",
        "-CAfile",
        str(only),
        "-verify_return_error",
    ]
    return cluster.world.run(CONTROL, argv, check=False).returncode == 0
