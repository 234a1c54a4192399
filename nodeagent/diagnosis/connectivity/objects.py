"""The objects that are created in the cluster: all in one namespace, whose deletion deletes everything (pure)."""

from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]

LABEL = "app.kubernetes.io/managed-by"
OWNER = "nodeagent-connectivity"
"""Label value of all objects; `--cleanup` deletes the namespaces that have it."""
SELECTOR = f"{LABEL}={OWNER}"
ROLE, NODE_NUMBER = "nodeagent.io/connectivity", "nodeagent.io/connectivity-node"
SERVER, CLIENT, HOST = "server", "client", "host"
"""Roles: a server, a client in a pod's network, a client in the node's network."""
ROLES = (SERVER, CLIENT, HOST)
CONTAINER = "main"
PROGRAM, PROGRAM_PATH = "program", "/connectivity/pod_program.py"
PORT, SERVER_PORT = 80, 8080
BALANCER_CLASS = "nodeagent.io/connectivity"
"""A class without a controller, so that no load balancer is created and paid for."""

BALANCER, EXTERNAL_IP = "balancer", "external-ip"
EVERY, STICKY, HEADLESS, EMPTY = "every", "sticky", "headless", "empty"
INTERNAL, EXTERNAL, ELSEWHERE = "internal", "external", "elsewhere"


def service_of_node(number: int) -> str:
    """Returns the name of the Service whose only endpoint is the server of one node."""
    return f"server-{number}"


def namespace(name: str) -> Document:
    """Returns a namespace that allows pods in the node's network."""
    labels = {LABEL: OWNER, "pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def program_config_map(source: str) -> Document:
    """Returns a ConfigMap with the program of the pods, for any image with Python."""
    data = {"pod_program.py": source}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(PROGRAM), "data": data}


def daemon_set(role: str, image: str, nodes: Sequence[str]) -> Document:
    """Returns a DaemonSet: one pod of a role on each of these nodes."""
    labels = {LABEL: OWNER, ROLE: role}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(role),
        "spec": {
            "selector": {"matchLabels": {ROLE: role}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(role, image, nodes)},
        },
    }


def _pod(role: str, image: str, nodes: Sequence[str]) -> Document:
    words = ["serve", str(SERVER_PORT)] if role == SERVER else ["wait"]
    # A term for each node, because a field match takes one value.
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "hostNetwork": role == HOST,
        "dnsPolicy": "ClusterFirstWithHostNet" if role == HOST else "ClusterFirst",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["python3", "-IS", PROGRAM_PATH, *words],
                "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": PROGRAM, "mountPath": "/connectivity", "readOnly": True}],
                **({"readinessProbe": _answers()} if role == SERVER else {}),
            }
        ],
        "volumes": [{"name": PROGRAM, "configMap": {"name": PROGRAM}}],
    }


def _answers() -> Document:
    return {"tcpSocket": {"port": SERVER_PORT}, "periodSeconds": 1}


def services(nodes: int) -> list[Document]:
    """Returns the Services that every cluster accepts, for this many nodes; the first is that of node 0."""
    here = {ROLE: SERVER, NODE_NUMBER: "0"}
    return [
        *(
            _service(service_of_node(number), {ROLE: SERVER, NODE_NUMBER: str(number)}, type="NodePort")
            for number in range(nodes)
        ),
        _service(EVERY, {ROLE: SERVER}),
        _service(STICKY, {ROLE: SERVER}, sessionAffinity="ClientIP"),
        _service(HEADLESS, {ROLE: SERVER}, clusterIP="None"),
        _service(EMPTY, {ROLE: "nobody"}),
        _service(INTERNAL, {ROLE: SERVER}, internalTrafficPolicy="Local"),
        _service(EXTERNAL, {ROLE: SERVER}, type="NodePort", externalTrafficPolicy="Local"),
        _service(ELSEWHERE, here, type="NodePort", externalTrafficPolicy="Local"),
    ]


def outer_services(external_ips: Sequence[str]) -> list[Document]:
    """Returns the Services with addresses from outside, which a cluster may refuse."""
    here = {ROLE: SERVER, NODE_NUMBER: "0"}
    return [
        _service(BALANCER, here, type="LoadBalancer", loadBalancerClass=BALANCER_CLASS),
        _service(EXTERNAL_IP, here, externalIPs=list(external_ips)),
    ]


def balancer_status(addresses: Sequence[str]) -> Document:
    """Returns a merge patch with the status that a load balancer's controller would write."""
    return {"status": {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}}}


def node_number(number: int) -> Document:
    """Returns a merge patch for the pod that is the server of a node."""
    return {"metadata": {"labels": {NODE_NUMBER: str(number)}}}


def _service(name: str, selector: dict[str, str], **spec: object) -> Document:
    ports = [
        {"name": protocol.lower(), "protocol": protocol, "port": PORT, "targetPort": SERVER_PORT}
        for protocol in ("TCP", "UDP")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name),
        "spec": {"selector": selector, "ports": ports, "ipFamilyPolicy": "PreferDualStack", **spec},
    }


def _metadata(name: str) -> Document:
    return {"name": name, "labels": {LABEL: OWNER}}
