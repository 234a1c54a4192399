"""A cluster of two nodes whose Services and names our DaemonSet serves, from the image of `make image`."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeagent import __version__
from tests.harness.kubernetes import images
from tests.harness.kubernetes.cluster import Cluster
from tests.harness.kubernetes.release import Release

ROOT = Path(__file__).parents[2]
OVERLAY = f"""
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: kube-system
resources: [deploy/base]
components: [deploy/components/names]
configMapGenerator:
  - {{name: nodeagent, behavior: merge, files: [kubeconfig, nodeagent.yaml]}}
images:
  - {{name: nodeagent, newName: docker.io/library/nodeagent, newTag: {__version__}}}
"""
CONFIGURATION = """
apiVersion: nodeagent.io/v1alpha1
kind: NodeAgentConfiguration
source: {kubeconfig: /etc/nodeagent/kubeconfig}
traffic: {clusterCIDRs: [10.244.0.0/16, "fd00:244::/32"]}
"""
DNS = """
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
"""


@contextmanager
def serving_cluster(image: Path, overlay: Path) -> Iterator[Cluster]:
    """image: an archive of ours. overlay: an empty directory for the manifests."""
    release = Release.of_environment()
    with Cluster(release, [images.make(release), image]) as cluster:
        shutil.copytree(ROOT / "deploy", overlay / "deploy")
        (overlay / "kustomization.yaml").write_text(OVERLAY)
        (overlay / "nodeagent.yaml").write_text(CONFIGURATION)
        kubeconfig = (ROOT / "deploy" / "base" / "kubeconfig").read_text()
        lines = [
            f"      server: {cluster.api_server}" if line.strip().startswith("server:") else line
            for line in kubeconfig.splitlines()
        ]
        (overlay / "kubeconfig").write_text("\n".join(lines) + "\n")
        cluster.kubectl("apply", "-f", "-", stdin=DNS)
        cluster.kubectl("apply", "-k", str(overlay))
        cluster.kubectl("-n", "kube-system", "rollout", "status", "daemonset", "nodeagent", "--timeout=110s")
        yield cluster
