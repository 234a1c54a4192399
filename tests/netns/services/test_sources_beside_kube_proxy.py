"""The sources that endpoints see with kube-proxy, in the same worlds: they are ours.

`KUBERNETES=DIR`: a directory with kube-proxy, as releases of Kubernetes have it. Without it there is nothing to compare with.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.lab.net.topology import POD_BRIDGE
from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE
from tests.harness.plain_api_server import plain_api_server
from tests.harness.serving_node import ServingNode
from tests.harness.worlds.topology import POD_CIDRS
from tests.netns.services import test_sources
from tests.netns.services.test_sources import ask_all, expected
from tests.netns.services.ways import place

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no directory with kube-proxy"),
]
exposed = test_sources.exposed
DETECTION: dict[str, dict[str, Any]] = {
    "ClusterCIDR": {"clusterCIDR": ",".join(POD_CIDRS)},
    "NodeCIDR": {},
    "BridgeInterface": {"detectLocal": {"bridgeInterface": POD_BRIDGE}},
    "InterfaceNamePrefix": {"detectLocal": {"interfaceNamePrefix": test_sources.PREFIX}},
    "none": {"detectLocalMode": "ClusterCIDR"},
}


@contextmanager
def kube_proxy(served: ServingNode, mode: str, place_for_files: Path) -> Iterator[None]:
    """kube-proxy on the node in nftables mode, until the block ends; its rules are gone then."""
    detection, _, masquerade_all = mode.partition(", ")
    kubeconfig, config = place_for_files / "kubeconfig", place_for_files / "kube-proxy.yaml"
    settings: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": NODE,
        "clientConnection": {"kubeconfig": str(kubeconfig), "contentType": "application/json"},
        "detectLocalMode": detection,
        "conntrack": {"maxPerCore": 0},
        "nftables": {"masqueradeAll": bool(masquerade_all)},
        **DETECTION[detection],
    }
    config.write_text(yaml.safe_dump(settings))
    objects = [yaml.safe_load(path.read_text()) for path in sorted(served.cluster.manifests.path.glob("*.yaml"))]
    program = Path(os.environ["KUBERNETES"]) / "kube-proxy"
    with plain_api_server(served.world.namespace(NODE), objects, kubeconfig):
        process = served.world.start(NODE, [str(program), "--config", str(config)])
        try:
            process.wait_until(
                lambda: not served.world["caller"].ask(*place("ClusterIP", 3, Family.IPV6)).failures, "rules"
            )
            process.wait_until(
                lambda: not served.world["caller"].ask(*place("ClusterIP", 3, Family.IPV4)).failures, "rules"
            )
            yield
        finally:
            process.kill()
            served.world.run(NODE, [str(program), "--cleanup"])


@pytest.mark.parametrize("mode", test_sources.FLAGS)
def test_kube_proxy_lets_endpoints_see_the_same(
    exposed: ServingNode, mode: str, pod_bridge: str, tmp_path: Path
) -> None:
    with kube_proxy(exposed, mode, tmp_path):
        for family in Family:
            wanted = expected(exposed, family, mode, pod_bridge)
            assert ask_all(exposed, family, wanted) == wanted
