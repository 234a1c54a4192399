#!/usr/bin/env python3
"""Writes the objects of this cluster to its API server, as kubelets and an administrator would. Runs on control nodes.

    objects.py declare              the machines, the pods on them, the Service `echo`, and that of cluster DNS
    objects.py expose NAME ADDRESS  one more Service for the same pods, at this ClusterIP
    objects.py withdraw NAME        without it again

What is there already as it should be is not written again. Needs only Python.
"""

import http.client
import json
import ssl
import sys
from pathlib import Path
from typing import Any

Document = dict[str, Any]

PKI = Path("/var/lib/nodeagent-apiserver/pki")
SETTINGS = Path("/etc/nodeagent-cluster/machine.env")
CORE = "/api/v1"
IN_DEFAULT, IN_KUBE_SYSTEM = (f"{CORE}/namespaces/{name}" for name in ("default", "kube-system"))
OURS = {"app.kubernetes.io/managed-by": "vagrant"}
APP = {"app": "echo"}
TARGET_PORT = 8080
NODE_PORT = 30080
FIRST_CONTROL = 12
"""The number of `control2`."""
CLUSTER_IPS = ["10.96.0.80", "fd00:10:96::80"]
DNS_IPS = ["10.96.0.10", "fd00:10:96::a"]


class Server:
    """The API server of this machine, as its administrator."""

    def __init__(self, host: str) -> None:
        context = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
        self._connection = http.client.HTTPSConnection(host, 6443, context=context, timeout=60)
        (self._token,) = (
            line.split(",")[0] for line in (PKI / "tokens.csv").read_text().splitlines() if ",admin," in line
        )

    def ask(self, method: str, path: str, body: Document | None = None, kind: str = "application/json") -> Document:
        """The reply. Raises SystemExit with what the server said when it refuses."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        reply = self._connection.getresponse()
        document: Document = json.loads(reply.read())
        if reply.status >= 400 and not (method == "DELETE" and reply.status == 404):
            raise SystemExit(f"{method} {path}: {reply.status} {document.get('message')}")
        return document

    def apply(self, collection: str, wanted: Document) -> None:
        """Create or change an object, its status too (server-side apply)."""
        path = f"{collection}/{wanted['metadata']['name']}"
        status = wanted.pop("status", None)
        self.ask("PATCH", f"{path}?fieldManager=vagrant&force=true", wanted, "application/apply-patch+yaml")
        if status:
            self.ask("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")

    def keep_only(self, collection: str, names: set[str]) -> None:
        """Delete what an earlier run declared and this one does not."""
        label, value = next(iter(OURS.items()))
        for item in self.ask("GET", f"{collection}?labelSelector={label}%3D{value}")["items"]:
            if item["metadata"]["name"] not in names:
                self.ask("DELETE", f"{collection}/{item['metadata']['name']}")


def node(number: int, settings: dict[str, str]) -> Document:
    """A machine; 0 and those from 12 on are control nodes, which have no pods. Without a heartbeat it is left as it is declared."""
    works = 0 < number < FIRST_CONTROL
    name = f"worker{number}" if works else f"control{number - 10}" if number else "control"
    ranges = [f"{settings['PODS']}.{number}.0/24", f"{settings['PODS6']}:{number}::/64"]
    addresses = [f"{settings['NETWORK']}.{10 + number}", f"fd00:56::{10 + number}"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": OURS | {"kubernetes.io/hostname": name}},
        "spec": {"podCIDR": ranges[0], "podCIDRs": ranges} if works else {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address} for address in addresses]
            + [{"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Declared"}],
        },
    }


def pod(worker: int, number: int, settings: dict[str, str]) -> Document:
    """A pod that runs on a worker."""
    addresses = [f"{settings['PODS']}.{worker}.1{number}", f"{settings['PODS6']}:{worker}::1{number}"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"echo-{worker}-{number}", "labels": OURS | APP},
        "spec": {
            "nodeName": f"worker{worker}",
            "containers": [{"name": "echo", "image": "pod_server.py", "ports": [{"containerPort": TARGET_PORT}]}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "podIP": addresses[0],
            "podIPs": [{"ip": address} for address in addresses],
            "hostIP": f"{settings['NETWORK']}.{10 + worker}",
        },
    }


def service(name: str, cluster_ips: list[str], **spec: object) -> Document:
    """A Service for all pods."""
    families = ["IPv6" if ":" in address else "IPv4" for address in cluster_ips]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": OURS},
        "spec": {
            "selector": APP,
            "clusterIP": cluster_ips[0],
            "clusterIPs": cluster_ips,
            "ipFamilies": families,
            "ipFamilyPolicy": "RequireDualStack" if len(families) == 2 else "SingleStack",
            **spec,
        },
    }


def declare(server: Server, settings: dict[str, str]) -> None:
    """Everything that is in this cluster."""
    workers = range(1, int(settings["WORKERS"]) + 1)
    further = range(FIRST_CONTROL, 10 + int(settings["CONTROLS"]) + 1)
    nodes = [node(number, settings) for number in (0, *further, *workers)]
    pods = [pod(worker, number, settings) for worker in workers for number in (1, 2)]
    for collection, wanted in ((f"{CORE}/nodes", nodes), (f"{IN_DEFAULT}/pods", pods)):
        for document in wanted:
            server.apply(collection, document)
        server.keep_only(collection, {document["metadata"]["name"] for document in wanted})
    names = [{"name": f"dns-{proto.lower()}", "protocol": proto, "port": 53} for proto in ("UDP", "TCP")]
    # Without pods: every machine answers at these addresses itself.
    server.apply(f"{IN_KUBE_SYSTEM}/services", service("kube-dns", DNS_IPS, selector={}, ports=names))
    port = {"name": "http", "port": 80, "targetPort": TARGET_PORT, "nodePort": NODE_PORT}
    server.apply(f"{IN_DEFAULT}/services", service("echo", CLUSTER_IPS, type="NodePort", ports=[port]))


def main(argv: list[str]) -> None:
    """See above."""
    settings = dict(line.split("=", 1) for line in SETTINGS.read_text().splitlines())
    server = Server(f"{settings['NETWORK']}.{10 + int(settings['NUMBER'])}")
    match argv:
        case ["declare"]:
            declare(server, settings)
        case ["expose", name, address]:
            ports = [{"port": 80, "targetPort": TARGET_PORT}]
            server.apply(f"{IN_DEFAULT}/services", service(name, [address], ports=ports))
        case ["withdraw", name]:
            server.ask("DELETE", f"{IN_DEFAULT}/services/{name}")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
