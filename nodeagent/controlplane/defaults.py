"""What a client left out, as Kubernetes fills it in (pkg/apis/*/v1/defaults.go). Each function changes its argument."""

import base64

from nodeagent.controlplane.documents import Document

_DEFAULT_AFFINITY_S = 10800
_DEFAULT_GRACE_S = 30


def default_service(service: Document) -> None:
    """core/v1 SetDefaults_Service. Address families are the allocation's business."""
    spec = service["spec"]
    spec.setdefault("sessionAffinity", "None")
    kind = spec.setdefault("type", "ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        if (config.get("clientIP") or {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _DEFAULT_AFFINITY_S}}
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (0, "", None):
            port["targetPort"] = port["port"]
    outside = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if outside:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP") and spec.get("internalTrafficPolicy") is None:
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for entry in service["status"]["loadBalancer"].get("ingress") or []:
            if entry.get("ip") and entry.get("ipMode") is None:
                entry["ipMode"] = "VIP"


def default_endpoints(endpoints: Document) -> None:
    """core/v1 SetDefaults_Endpoints."""
    for subset in endpoints.get("subsets") or []:
        for port in subset.get("ports") or []:
            port.setdefault("protocol", "TCP")


def default_slice(found: Document) -> None:
    """discovery.k8s.io/v1 SetDefaults_EndpointPort."""
    for port in found.get("ports") or []:
        if port.get("name") is None:
            port["name"] = ""
        if port.get("protocol") is None:
            port["protocol"] = "TCP"


def default_namespace(namespace: Document) -> None:
    """Every namespace carries its name as a label (SetDefaults_Namespace)."""
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", name)


def default_pod(pod: Document) -> None:
    """core/v1 SetDefaults_Pod, Container and ContainerPort, as far as clients look at it."""
    spec = pod["spec"]
    for name, value in (
        ("restartPolicy", "Always"),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        spec.setdefault(name, value)
    spec.setdefault("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("securityContext", {})
    for container in spec.get("containers") or []:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        latest = container.get("image", "").rpartition("/")[2].rpartition(":")[2] in (container.get("image"), "latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork"):
                port.setdefault("hostPort", port["containerPort"])
    if pod["status"].get("podIP") and not pod["status"].get("podIPs"):
        pod["status"]["podIPs"] = [{"ip": pod["status"]["podIP"]}]


def default_node(node: Document) -> None:
    """`podCIDR` and `podCIDRs` say the same (conversion of core/v1 Node); the name is a label."""
    spec = node["spec"]
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    if spec.get("podCIDRs") and not spec.get("podCIDR"):
        spec["podCIDR"] = spec["podCIDRs"][0]


def default_secret(secret: Document) -> None:
    """Type Opaque; stringData is folded into data."""
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = dict(sorted({**(secret.get("data") or {}), **encoded}.items()))


def default_event(event: Document) -> None:
    """A type is Normal unless said otherwise; the count of a single event is one."""
    event.setdefault("type", "Normal")
    if event.get("firstTimestamp") and not event.get("count"):
        event["count"] = 1
