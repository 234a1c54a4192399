"""Pod (core/v1): used for its addresses, ports, labels and readiness.

All fields are known and stored as sent; those that only matter to running containers are not checked.
"""

from collections.abc import Iterator

from nodeagent.kinds.description.address_texts import parse_ip
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import (
    IP_EXAMPLE,
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    field_errors,
    port_name,
    port_number,
)
from nodeagent.kinds.description.life import KindLife
from nodeagent.kinds.description.printing import AGE, NONE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, duplicate, forbidden, invalid, required, unsupported
from nodeagent.kinds.pod import pod_parts

SHAPES = read_shapes(
    r"""
Pod = io.k8s.api.core.v1 : Pod is a collection of containers that can run on a host. This resource is created by clients and scheduled onto hosts.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      PodSpec #2 : Specification of the desired behavior of the pod.
  status    PodStatus #3 : Most recently observed status of the pod.

PodSpec = io.k8s.api.core.v1 : PodSpec is a description of a pod.
  volumes                        [Volume] keys=name merge=name #1 : List of volumes that can be mounted by containers belonging to the pod.
  initContainers                 [Container] keys=name merge=name #20 : List of initialization containers belonging to the pod.
  containers                     [Container]! required keys=name merge=name #2 : List of containers belonging to the pod.
  ephemeralContainers            [EphemeralContainer] keys=name merge=name #34 : List of ephemeral containers run in this pod.
  restartPolicy                  string #3 : Restart policy for all containers within the pod. One of Always, OnFailure, Never.
  terminationGracePeriodSeconds  *int64 #4 : Optional duration in seconds the pod needs to terminate gracefully.
  activeDeadlineSeconds          *int64 #5 : Optional duration in seconds the pod may be active on the node relative to StartTime.
  dnsPolicy                      string #6 : Set DNS policy for the pod. Defaults to "ClusterFirst".
  nodeSelector                   {string} atomic #7 : NodeSelector is a selector which must be true for the pod to fit on a node.
  serviceAccountName             string #8 : ServiceAccountName is the name of the ServiceAccount to use to run this pod.
  serviceAccount                 string #9 : DeprecatedServiceAccount is a deprecated alias for ServiceAccountName.
  automountServiceAccountToken   *bool #21 : AutomountServiceAccountToken indicates whether a service account token should be automatically mounted.
  nodeName                       string #10 : NodeName indicates in which node this pod is scheduled.
  hostNetwork                    bool #11 : Host networking requested for this pod. Use the host's network namespace.
  hostPID                        bool #12 : Use the host's pid namespace.
  hostIPC                        bool #13 : Use the host's ipc namespace.
  shareProcessNamespace          *bool #27 : Share a single process namespace between all of the containers in a pod.
  securityContext                *PodSecurityContext #14 : SecurityContext holds pod-level security attributes and common container settings.
  imagePullSecrets               [LocalObjectReference] keys=name merge=name #15 : ImagePullSecrets is an optional list of references to secrets in the same namespace.
  hostname                       string #16 : Specifies the hostname of the Pod.
  subdomain                      string #17 : If specified, the fully qualified Pod hostname will be "<hostname>.<subdomain>.<pod namespace>.svc.<cluster domain>".
  affinity                       *Affinity #18 : If specified, the pod's scheduling constraints.
  schedulerName                  string #19 : If specified, the pod will be dispatched by specified scheduler.
  tolerations                    [Toleration] #22 : If specified, the pod's tolerations.
  hostAliases                    [HostAlias] keys=ip merge=ip #23 : HostAliases is an optional list of hosts and IPs that will be injected into the pod's hosts file.
  priorityClassName              string #24 : If specified, indicates the pod's priority.
  priority                       *int32 #25 : The priority value.
  dnsConfig                      *PodDNSConfig #26 : Specifies the DNS parameters of a pod.
  readinessGates                 [PodReadinessGate] #28 : If specified, all readiness gates will be evaluated for pod readiness.
  runtimeClassName               *string #29 : RuntimeClassName refers to a RuntimeClass object in the node.k8s.io group.
  enableServiceLinks             *bool #30 : EnableServiceLinks indicates whether information about services should be injected into pod's environment variables.
  preemptionPolicy               *string #31 : PreemptionPolicy is the Policy for preempting pods with lower priority.
  overhead                       {quantity} #32 : Overhead represents the resource overhead associated with running a pod for a given RuntimeClass.
  topologySpreadConstraints      [TopologySpreadConstraint] keys=topologyKey,whenUnsatisfiable merge=topologyKey #33 : TopologySpreadConstraints describes how a group of pods ought to spread across topology domains.
  setHostnameAsFQDN              *bool #35 : If true the pod's hostname will be configured as the pod's FQDN.
  os                             *PodOS #36 : Specifies the OS of the containers in the pod.
  hostUsers                      *bool #37 : Use the host's user namespace.
  schedulingGates                [PodSchedulingGate] keys=name merge=name #38 : SchedulingGates is an opaque list of values that if specified will block scheduling the pod.
  resourceClaims                 [PodResourceClaim] keys=name merge=name #39 : ResourceClaims defines which ResourceClaims must be allocated and reserved before the Pod is allowed to start.
  resources                      *ResourceRequirements #40 : Resources is the total amount of CPU and Memory resources required by all containers in the pod.
  hostnameOverride               *string #41 : HostnameOverride specifies an explicit override for the pod's hostname.
  schedulingGroup                *PodSchedulingGroup #43

PodSecurityContext = io.k8s.api.core.v1
  seLinuxOptions *SELinuxOptions #1; windowsOptions *WindowsSecurityContextOptions #8; runAsUser *int64 #2; runAsGroup *int64 #6
  runAsNonRoot *bool #3; supplementalGroups [int64] #4; supplementalGroupsPolicy *string #12; fsGroup *int64 #5; sysctls [Sysctl] #7
  fsGroupChangePolicy *string #9; seccompProfile *SeccompProfile #10; appArmorProfile *AppArmorProfile #11; seLinuxChangePolicy *string #13
HostAlias = io.k8s.api.core.v1; ip string! required #1; hostnames [string] #2
PodDNSConfig = io.k8s.api.core.v1; nameservers [string] #1; searches [string] #2; options [PodDNSConfigOption] #3

PodReadinessGate = io.k8s.api.core.v1 : PodReadinessGate contains the reference to a pod condition.
  conditionType  string! required #1 : ConditionType refers to a condition in the pod's condition list with matching type.

PodOS = io.k8s.api.core.v1; name string! required #1
PodSchedulingGate = io.k8s.api.core.v1; name string! required #1
PodResourceClaim = io.k8s.api.core.v1; name string! required #1; resourceClaimName *string #3; resourceClaimTemplateName *string #4
PodSchedulingGroup = io.k8s.api.core.v1; podGroupName *string #1
Sysctl = io.k8s.api.core.v1; name string! required #1; value string! required #2
PodDNSConfigOption = io.k8s.api.core.v1; name string #1; value *string #2
""",
    pod_parts.SHAPES,
)


_DEFAULT_GRACE_SECONDS = 30
_RESTARTS = ("Always", "Never", "OnFailure")
_DNS = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def default_pod_spec(spec: Document, *, is_template: bool = False) -> None:
    """Sets the defaults that clients read: core/v1 SetDefaults_PodSpec, Container, ContainerPort. Templates get no hostPort."""
    for name, value in (
        ("restartPolicy", "Always"),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        spec.setdefault(name, value)
    spec.setdefault("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("securityContext", {})
    for container in spec.get("containers") or []:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        latest = container.get("image", "").rpartition("/")[2].rpartition(":")[2] in (container.get("image"), "latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork") and not is_template:
                port.setdefault("hostPort", port["containerPort"])


def default_pod(pod: Document) -> None:
    """Sets defaults: core/v1 SetDefaults_Pod."""
    default_pod_spec(pod["spec"])
    status = pod["status"]
    first = status.get("podIP")
    if first and [entry["ip"] for entry in status.get("podIPs") or []][:1] != [first]:
        # If they differ, podIP wins (Convert_v1_PodStatus_To_core_PodStatus).
        status["podIPs"] = [{"ip": first}]
    elif status.get("podIPs") and not first:
        status["podIP"] = status["podIPs"][0]["ip"]


def validate_pod_spec(spec: Document, at: str) -> Iterator[FieldError]:
    """Yields errors of containers, their ports, and names. `at`: the path of the spec in its object."""
    containers: list[Document] = spec.get("containers") or []
    if not containers:
        yield required(f"{at}.containers")
    names: set[str] = set()
    for index, container in enumerate(containers):
        field = f"{at}.containers[{index}]"
        name = container.get("name", "")
        yield from field_errors(f"{field}.name", name, dns_label(name)) if name else [required(f"{field}.name")]
        yield from [duplicate(f"{field}.name", name)] if name and name in names else []
        names.add(name)
        if not container.get("image"):
            yield required(f"{field}.image")
        yield from _container_ports(
            container.get("ports") or [], f"{field}.ports", shared=spec.get("hostNetwork", False)
        )
    if spec.get("nodeName"):
        yield from field_errors(f"{at}.nodeName", spec["nodeName"], dns_subdomain(spec["nodeName"]))
    for part, known in (("restartPolicy", _RESTARTS), ("dnsPolicy", _DNS)):
        if spec.get(part) not in known:
            yield unsupported(f"{at}.{part}", spec.get(part, ""), known)
    for part in ("hostname", "subdomain"):
        if spec.get(part):
            yield from field_errors(f"{at}.{part}", spec[part], dns_label(spec[part]))


def validate_pod(pod: Document) -> Iterator[FieldError]:
    """Yields the errors of the spec and of the pod's addresses."""
    yield from validate_pod_spec(pod["spec"], "spec")
    yield from (
        invalid(f"status.podIPs[{index}]", entry["ip"], IP_EXAMPLE)
        for index, entry in enumerate(pod["status"].get("podIPs") or [])
        if parse_ip(entry["ip"]) is None
    )


def _container_ports(ports: list[Document], field: str, *, shared: bool) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{field}[{index}]"
        name = port.get("name", "")
        yield from field_errors(f"{at}.name", name, port_name(name)) if name else []
        yield from [duplicate(f"{at}.name", name)] if name and name in names else []
        names.add(name)
        yield from field_errors(f"{at}.containerPort", port["containerPort"], port_number(port["containerPort"]))
        if port.get("protocol") not in PROTOCOLS:
            yield unsupported(f"{at}.protocol", port.get("protocol", ""), PROTOCOLS)
        if shared and port.get("hostPort") not in (None, 0, port["containerPort"]):
            why = "must match `hostPort` when `hostNetwork` is true"
            yield invalid(f"{at}.containerPort", port["containerPort"], why)


def validate_pod_update(pod: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change: containers' names and ports are immutable, and the node once it is set."""
    yield from validate_pod(pod)
    spec, before = pod["spec"], old["spec"]
    bound = before.get("nodeName") and before.get("nodeName") != spec.get("nodeName")
    if bound or [_immutable_part(c) for c in spec["containers"] or []] != [
        _immutable_part(c) for c in before["containers"] or []
    ]:
        why = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
            " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        yield forbidden("spec", why)


def _immutable_part(container: Document) -> Document:
    return {name: value for name, value in container.items() if name not in ("image", "resources")}


class PodLife(KindLife):
    """A new pod is pending, whatever status its creator sends."""

    def __init__(self) -> None:
        super().__init__(has_status=True)

    def prepare_create(self, document: Document) -> None:
        """Sets the phase Pending, and the QoS class by whether a container has resources."""
        asks = [container.get("resources") or {} for container in document["spec"].get("containers") or []]
        quality = "Burstable" if any(ask.get("limits") or ask.get("requests") for ask in asks) else "BestEffort"
        document["status"] = {"phase": "Pending", "qosClass": quality}

    def grace_seconds(self, live: Document, asked: int | None) -> int:
        """Returns 0 for a pod that never ran or has ended (pkg/registry/core/pod CheckGracefulDelete)."""
        spec, status = live["spec"], live["status"]
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        default: int = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
        return max(default if asked is None else asked, 0)


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    spec, status = document["spec"], document["status"]
    containers = status.get("containerStatuses") or []
    ready = sum(1 for c in containers if c.get("ready"))
    state = status.get("reason") or status.get("phase") or "Unknown"
    if document["metadata"].get("deletionTimestamp"):
        state = "Terminating"
    restarts = sum(int(c.get("restartCount", 0)) for c in containers)
    addresses = [entry["ip"] for entry in status.get("podIPs") or []]
    gates = spec.get("readinessGates") or []
    return [
        name,
        f"{ready}/{len(spec.get('containers') or [])}",
        state,
        str(restarts),
        old,
        addresses[0] if addresses else NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"0/{len(gates)}" if gates else NONE,
    ]


PRINTER = Printer(
    (
        Column("Ready", description="The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", description="The aggregate status of the containers in this pod."),
        Column("Restarts", description="The number of times the containers in this pod have been restarted."),
        AGE,
        Column("IP", described_by="status.podIP", priority=1),
        Column("Node", described_by="spec.nodeName", priority=1),
        Column("Nominated Node", described_by="status.nominatedNodeName", priority=1),
        Column("Readiness Gates", described_by="spec.readinessGates", priority=1),
    ),
    _cells,
)


ROWS = (
    Resource(
        plural="pods",
        singular="pod",
        returns_deleted=True,
        kind="Pod",
        struct=SHAPES["Pod"],
        short_names=("po",),
        categories=("all",),
        printer=PRINTER,
        has_status=True,
        default=default_pod,
        validate=validate_pod,
        validate_update=validate_pod_update,
        generation_of=("spec",),
        fields=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
            "spec.host",
        ),
        # spec.host is the name before 1.0; kube-apiserver treats status.podIPs as always empty.
        field_sources={"spec.host": ("spec.nodeName",), "status.podIPs": ()},
        storage_hash="xPOwRZ+Yhw8=",
        own_life=PodLife(),
    ),
)
