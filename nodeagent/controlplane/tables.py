"""What `kubectl get` prints: columns and cells per kind (pkg/printers/internalversion). Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from nodeagent.controlplane.documents import Document, Json

Cells: TypeAlias = Callable[[Document, float], list[Json]]

_NONE = "<none>"
_SHOWN_ENDPOINTS = 3


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `described_by` is the path of the field whose documentation explains it, priority 1 shows with -o wide."""

    name: str
    kind: str = "string"
    described_by: str = ""
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Printer:
    """Columns and the function that fills them. `named`: a Name column, not listed, comes first."""

    columns: Sequence[Column]
    cells: Cells
    named: bool = True


def age(timestamp: str | None, now: float) -> str:
    """A time span as kubectl writes it (duration.HumanDuration): `5s`, `3m20s`, `2d4h`."""
    if not timestamp:
        return "<unknown>"
    then = datetime.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    seconds = int(now - then)
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    for limit, text in (
        (120, f"{seconds}s"),
        (600, f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"),
        (3 * 3600, f"{minutes}m"),
        (8 * 3600, f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"),
        (48 * 3600, f"{hours}h"),
        (8 * 86400, f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"),
        (730 * 86400, f"{days}d"),
    ):
        if seconds < limit:
            return text
    years = days // 365
    return f"{years}y{days % 365}d" if days < 8 * 365 and days % 365 else f"{years}y"


def _meta(document: Document, now: float) -> tuple[str, str]:
    meta = document["metadata"]
    return meta.get("name", ""), age(meta.get("creationTimestamp"), now)


def _pairs(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _service(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    spec = document["spec"]
    internal = spec.get("clusterIP") or _NONE
    ports = ",".join(
        f"{port['port']}:{port['nodePort']}/{port['protocol']}"
        if port.get("nodePort")
        else f"{port['port']}/{port['protocol']}"
        for port in spec.get("ports") or []
    )
    return [name, spec.get("type"), internal, _external(document), ports or _NONE, old, _pairs(spec.get("selector"))]


def _external(document: Document) -> str:
    spec = document["spec"]
    given = list(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or _NONE
    if spec.get("type") == "LoadBalancer":
        entries = document["status"]["loadBalancer"].get("ingress") or []
        found = [entry.get("ip") or entry.get("hostname") for entry in entries] + given
        return ",".join(filter(None, found)) or "<pending>"
    return ",".join(given) or _NONE


def _some(texts: list[str]) -> str:
    if len(texts) > _SHOWN_ENDPOINTS:
        return f"{','.join(texts[:_SHOWN_ENDPOINTS])} + {len(texts) - _SHOWN_ENDPOINTS} more..."
    return ",".join(texts) or _NONE


def _endpoints(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    texts = []
    for subset in document.get("subsets") or []:
        for port in subset.get("ports") or [{}]:
            for address in subset.get("addresses") or []:
                ip = address["ip"]
                host = f"[{ip}]" if ":" in ip and port else ip
                texts.append(f"{host}:{port['port']}" if port else ip)
    return [name, _some(texts), old]


def _slice(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    ports = [str(port.get("port") or "*") for port in document.get("ports") or []]
    addresses = [address for endpoint in document.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    return [
        name,
        document.get("addressType"),
        _some(ports) if ports else "<unset>",
        _some(addresses) if addresses else "<unset>",
        old,
    ]


def _node(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    status, labels = document["status"], document["metadata"].get("labels") or {}
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    said = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown" if ready == "Unknown" else "NotReady")
    if ready == "Unknown" and status.get("conditions"):
        said = "NotReady"
    if document["spec"].get("unschedulable"):
        said += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or _NONE
    addresses = {entry["type"]: entry["address"] for entry in reversed(status.get("addresses") or [])}
    info = status.get("nodeInfo") or {}
    return [
        name,
        said,
        roles,
        old,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _pod(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    spec, status = document["spec"], document["status"]
    containers = status.get("containerStatuses") or []
    ready = sum(1 for c in containers if c.get("ready"))
    said = status.get("reason") or status.get("phase") or "Unknown"
    if document["metadata"].get("deletionTimestamp"):
        said = "Terminating"
    restarts = sum(int(c.get("restartCount", 0)) for c in containers)
    addresses = [entry["ip"] for entry in status.get("podIPs") or []]
    gates = spec.get("readinessGates") or []
    return [
        name,
        f"{ready}/{len(spec.get('containers') or [])}",
        said,
        str(restarts),
        old,
        addresses[0] if addresses else _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"0/{len(gates)}" if gates else _NONE,
    ]


def _namespace(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    return [name, document["status"].get("phase", ""), old]


def _event(document: Document, now: float) -> list[Json]:
    about = document["involvedObject"]
    kind = about.get("kind", "").lower()
    count = document.get("count") or 1
    source = document.get("source") or {}
    last = document.get("lastTimestamp") or document.get("eventTime")
    first = document.get("firstTimestamp") or document.get("eventTime")
    host = f", {source['host']}" if source.get("host") else ""
    return [
        age(last, now),
        document.get("type", ""),
        document.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{source.get('component', '')}{host}" if source else document.get("reportingComponent", ""),
        document.get("message", "").strip(),
        age(first, now),
        count,
        document["metadata"].get("name", ""),
    ]


def _data(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    return [name, len(document.get("data") or {}) + len(document.get("binaryData") or {}), old]


def _secret(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    return [name, document.get("type", ""), len(document.get("data") or {}), old]


def _account(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    return [name, len(document.get("secrets") or []), old]


def _lease(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    return [name, document["spec"].get("holderIdentity") or "", old]


def _service_cidr(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    return [name, ",".join(document["spec"].get("cidrs") or []), old]


def _ip_address(document: Document, now: float) -> list[Json]:
    name, old = _meta(document, now)
    parent = document["spec"].get("parentRef") or {}
    parts = [parent.get("resource", ""), parent.get("namespace", ""), parent.get("name", "")]
    return [name, "/".join(part for part in parts if part), old]


_AGE = Column("Age", described_by="metadata.creationTimestamp")

SERVICE = Printer(
    (
        Column("Type", described_by="spec.type"),
        Column("Cluster-IP", described_by="spec.clusterIP"),
        Column("External-IP", described_by="spec.externalIPs"),
        Column("Port(s)", described_by="spec.ports"),
        _AGE,
        Column("Selector", described_by="spec.selector", priority=1),
    ),
    _service,
)
ENDPOINTS = Printer((Column("Endpoints", described_by="subsets"), _AGE), _endpoints)
SLICE = Printer(
    (
        Column("AddressType", described_by="addressType"),
        Column("Ports", described_by="ports"),
        Column("Endpoints", described_by="endpoints"),
        _AGE,
    ),
    _slice,
)
NODE = Printer(
    (
        Column("Status", description="The status of the node"),
        Column("Roles", description="The roles of the node"),
        _AGE,
        Column("Version", description="Kubelet Version reported by the node."),
        Column("Internal-IP", described_by="status.addresses", priority=1),
        Column("External-IP", described_by="status.addresses", priority=1),
        Column("OS-Image", description="OS Image reported by the node from /etc/os-release.", priority=1),
        Column("Kernel-Version", description="Kernel Version reported by the node from 'uname -r'.", priority=1),
        Column("Container-Runtime", description="ContainerRuntime Version reported by the node.", priority=1),
    ),
    _node,
)
POD = Printer(
    (
        Column("Ready", description="The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", description="The aggregate status of the containers in this pod."),
        Column("Restarts", description="The number of times the containers in this pod have been restarted."),
        _AGE,
        Column("IP", described_by="status.podIP", priority=1),
        Column("Node", described_by="spec.nodeName", priority=1),
        Column("Nominated Node", described_by="status.nominatedNodeName", priority=1),
        Column("Readiness Gates", described_by="spec.readinessGates", priority=1),
    ),
    _pod,
)
NAMESPACE = Printer((Column("Status", description="The status of the namespace"), _AGE), _namespace)
EVENT = Printer(
    (
        Column("Last Seen", described_by="lastTimestamp"),
        Column("Type", described_by="type"),
        Column("Reason", described_by="reason"),
        Column("Object", described_by="involvedObject"),
        Column("Subobject", described_by="involvedObject.fieldPath", priority=1),
        Column("Source", described_by="source", priority=1),
        Column("Message", described_by="message"),
        Column("First Seen", described_by="firstTimestamp", priority=1),
        Column("Count", described_by="count", priority=1),
        Column("Name", described_by="metadata.name", priority=1),
    ),
    _event,
    named=False,
)
CONFIG_MAP = Printer((Column("Data", described_by="data"), _AGE), _data)
SECRET = Printer((Column("Type", described_by="type"), Column("Data", described_by="data"), _AGE), _secret)
ACCOUNT = Printer((Column("Secrets", described_by="secrets"), _AGE), _account)
LEASE = Printer((Column("Holder", described_by="spec.holderIdentity"), _AGE), _lease)
SERVICE_CIDR = Printer((Column("CIDRs", described_by="spec.cidrs"), _AGE), _service_cidr)
IP_ADDRESS = Printer((Column("ParentRef", described_by="spec.parentRef"), _AGE), _ip_address)
