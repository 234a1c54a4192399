"""What serves Services and names in a cluster: nodeagent as its manifests deploy it, or kube-proxy and CoreDNS."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from tests.harness.kubernetes.cluster import Cluster
from tests.harness.kubernetes.images import COREDNS
from tests.harness.kubernetes.node import CLUSTER_DNS, Node
from tests.harness.kubernetes.release import ROOT, Release
from tests.harness.worlds.topology import POD_CIDRS

DEPLOY = ROOT / "deploy"
NAMESPACE = "kube-system"
COREFILE = """.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    forward . /etc/resolv.conf
    cache 30
    loadbalance
}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """`install` brings it to a cluster, and returns when it serves."""

    name: str
    shown: str
    install: Callable[[Cluster, Release], None]


def install_nodeagent(cluster: Cluster, _: Release) -> None:
    """`deploy/base` with the component `names`, by an overlay as docs/deploy.md has it."""
    overlay = cluster.directory / "nodeagent"
    overlay.mkdir()
    deploy = os.path.relpath(DEPLOY, overlay)
    base = yaml.safe_load((DEPLOY / "base" / "nodeagent.yaml").read_text())
    base["traffic"]["clusterCIDRs"] = list(POD_CIDRS)
    kubeconfig = yaml.safe_load((DEPLOY / "base" / "kubeconfig").read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = cluster.api_server
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [f"{deploy}/base"],
        "components": [f"{deploy}/components/names"],
        "configMapGenerator": [{"name": "nodeagent", "behavior": "merge", "files": ["kubeconfig", "nodeagent.yaml"]}],
    }
    for name, document in (("nodeagent.yaml", base), ("kubeconfig", kubeconfig), ("kustomization.yaml", kustomization)):
        (overlay / name).write_text(yaml.safe_dump(document))
    cluster.kubectl("apply", "-k", str(overlay))
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset", "nodeagent", "--timeout=110s")


def install_kube_proxy(cluster: Cluster, release: Release) -> None:
    """kube-proxy with nftables as a process on each node, and CoreDNS behind its Service."""
    kubeconfig = cluster.certificates.client("kube-proxy", "system:kube-proxy")
    for node in cluster.nodes:
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "clusterCIDR": ",".join(POD_CIDRS),
            "hostnameOverride": node.name,
            # Those of the whole machine cannot be changed from a network namespace.
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
        path = node.directory / "kube-proxy.yaml"
        path.write_text(json.dumps(configuration))
        node.run_daemon("kube-proxy", str(release.find("kube-proxy")), f"--config={path}")
    cluster.wait_until(lambda: all(map(_has_rules_of_kube_proxy, cluster.nodes)), "rules of kube-proxy")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_coredns()))
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment", "coredns", "--timeout=110s")


def _has_rules_of_kube_proxy(node: Node) -> bool:
    return node.run("nft", "list", "table", "ip", "kube-proxy", check=False) == 0


NODEAGENT = Proxy("nodeagent", "nodeagent, names included", install_nodeagent)
KUBE_PROXY = Proxy("kube-proxy", "kube-proxy (nftables) with CoreDNS", install_kube_proxy)
PROXIES = {proxy.name: proxy for proxy in (NODEAGENT, KUBE_PROXY)}


def _coredns() -> dict[str, object]:
    labels = {"k8s-app": "kube-dns"}
    rights = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    named = {"name": "coredns", "namespace": NAMESPACE}
    container = {
        "name": "coredns",
        "image": COREDNS,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "configuration", "configMap": {"name": "coredns"}}],
    }
    ports = [
        {"name": name, "port": 53, "protocol": protocol} for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coredns"}
    items: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"Corefile": COREFILE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "coredns"},
            "rules": rights,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "coredns"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **named}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": named,
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": NAMESPACE, "labels": labels},
            "spec": {"clusterIP": CLUSTER_DNS, "selector": labels, "ports": ports},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}
