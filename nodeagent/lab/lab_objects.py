"""The API objects of a lab, as a kubelet and an administrator would write them. Times are text."""

import platform
from typing import Any

from nodeagent.lab.lab_plan import DNS_PORT, LABELS, SERVICE, SERVICE_PORT, TARGET_PORT, ZONES, Settings
from nodeagent.lab.net.topology import Node, Pod

Document = dict[str, Any]

NAMESPACE = "default"
NODES = "/api/v1/nodes"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
DNS_SERVICES = "/api/v1/namespaces/kube-system/services"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
MANAGED_BY = "app.kubernetes.io/managed-by"
"""The label with the name of the lab to which an object belongs."""
CHANGES = "nodeagent-lab-change"
"""Name prefix and label of the Services that test whether changes take effect."""
MERGE_PATCH = "application/merge-patch+json"
LEASE_SECONDS = 40
IMAGE = "nodeagent-lab/echo"


def node_object(node: Node, number: int, now: str) -> Document:
    """Returns a ready node with its addresses and pod ranges, in one of two zones."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name,
                "topology.kubernetes.io/zone": ZONES[(number - 1) % len(ZONES)],
            },
        },
        "spec": {"podCIDR": node.pod_cidrs[0], "podCIDRs": list(node.pod_cidrs)},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address} for address in node.addresses]
            + [{"type": "Hostname", "address": node.name}],
            "conditions": [ready_condition(now, "KubeletReady") | {"lastHeartbeatTime": now}],
            "nodeInfo": node_info(),
        },
    }


def node_info() -> Document:
    """Returns what `kubectl get nodes -o wide` shows; the API requires every field."""
    fields = ("machineID", "systemUUID", "bootID", "kubeletVersion", "kubeProxyVersion", "containerRuntimeVersion")
    known = {"osImage": "network namespace", "kernelVersion": platform.release(), "operatingSystem": "linux"}
    return dict.fromkeys(fields, "nodeagent lab") | known | {"architecture": platform.machine()}


def heartbeat(since: str, now: str) -> Document:
    """Returns a merge patch of a node's status: ready since `since`, last seen `now`."""
    return {"status": {"conditions": [ready_condition(since, "KubeletReady") | {"lastHeartbeatTime": now}]}}


def ready_condition(since: str, reason: str = "") -> Document:
    """Returns the condition Ready."""
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    return condition | {"reason": reason} if reason else condition


def lease(node: str, now: str) -> Document:
    """Returns a node's Lease; `now` has microseconds."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }


def pod_object(pod: Pod, node: str) -> Document:
    """Returns a pod that is scheduled to a node."""
    ports = [{"name": "tcp", "containerPort": TARGET_PORT}]
    ports.append({"name": "udp", "containerPort": TARGET_PORT, "protocol": "UDP"})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": NAMESPACE, "labels": dict(LABELS)},
        "spec": {"nodeName": node, "containers": [{"name": SERVICE, "image": IMAGE, "ports": ports}]},
    }


def running_status(pod: Pod, host: str, now: str) -> Document:
    """Returns a merge patch of a pod's status: running and ready."""
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [ready_condition(now) | {"type": kind} for kind in kinds]
    return {
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": host,
            "podIP": pod.addresses[0],
            "podIPs": [{"ip": address} for address in pod.addresses],
            "startTime": now,
            "containerStatuses": [
                {
                    "name": SERVICE,
                    "image": IMAGE,
                    "imageID": IMAGE,
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
            ],
        }
    }


def service_object(settings: Settings) -> Document:
    """Returns the lab's own service: every kind of address, TCP and UDP, all pods."""
    spec: Document = {
        "type": "LoadBalancer",
        "selector": dict(LABELS),
        "ports": [
            {"name": "tcp", "port": SERVICE_PORT, "targetPort": TARGET_PORT, "protocol": "TCP"},
            {"name": "udp", "port": SERVICE_PORT, "targetPort": TARGET_PORT, "protocol": "UDP"},
        ],
    }
    if settings.ipv6:
        spec |= {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": NAMESPACE}, "spec": spec}


def change_object(name: str) -> Document:
    """Returns a service with only a ClusterIP, for all pods."""
    spec = {"selector": dict(LABELS), "ports": [{"port": SERVICE_PORT, "targetPort": TARGET_PORT}]}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {MANAGED_BY: CHANGES}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def dns_service_object(settings: Settings) -> Document:
    """Returns the DNS Service as every cluster has it, but without endpoints: the nodes answer."""
    addresses = list(settings.dns_addresses)
    spec: Document = {
        "clusterIP": addresses[0],
        "clusterIPs": addresses,
        "ports": [
            {"name": "dns", "port": DNS_PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "port": DNS_PORT, "protocol": "TCP"},
        ],
    }
    if settings.ipv6:
        spec |= {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
    metadata = {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
