"""Pod (core/v1): here for its addresses, ports, labels and readiness.

Other fields are kept as given (`any`): nothing in this control plane runs containers, so nothing could honour or judge them.
"""

from nodeagent.controlplane.addresses.texts import parse_ip
from nodeagent.controlplane.documents import Document, Json
from nodeagent.controlplane.machinery.formats import (
    IP_EXAMPLE,
    PROTOCOLS,
    checked,
    dns_label,
    dns_subdomain,
    port_name,
    port_number,
)
from nodeagent.controlplane.machinery.lifecycle import Plain
from nodeagent.controlplane.machinery.printing import AGE, NONE, Column, Printer, name_and_age
from nodeagent.controlplane.machinery.resources import Resource
from nodeagent.controlplane.machinery.schema.shared import read_shapes
from nodeagent.controlplane.status import FieldError, duplicate, forbidden, invalid, required, unsupported

SHAPES = read_shapes(r"""
ContainerPort = io.k8s.api.core.v1 : ContainerPort represents a network port in a single container.
  name           string : If specified, this must be an IANA_SVC_NAME and unique within the pod.
  hostPort       int32 : Number of port to expose on the host.
  containerPort  int32! required : Number of port to expose on the pod's IP address.
  protocol       string default=TCP : Protocol for port. Must be UDP, TCP, or SCTP. Defaults to "TCP".
  hostIP         string : What host IP to bind the external port to.

EnvVar = io.k8s.api.core.v1 : EnvVar represents an environment variable present in a Container.
  name       string! required : Name of the environment variable.
  value      string : Variable value.
  valueFrom  *any : Source for the environment variable's value.

ResourceRequirements = io.k8s.api.core.v1 : ResourceRequirements describes the compute resource requirements.
  limits    {quantity} : Limits describes the maximum amount of compute resources allowed.
  requests  {quantity} : Requests describes the minimum amount of compute resources required.
  claims    [any] : Claims lists the names of resources that are used by this container.

Container = io.k8s.api.core.v1 : A single application container that you want to run within a pod.
  name                      string! required : Name of the container specified as a DNS_LABEL.
  image                     string : Container image name.
  command                   [string] : Entrypoint array.
  args                      [string] : Arguments to the entrypoint.
  workingDir                string : Container's working directory.
  ports                     [ContainerPort] keys=containerPort,protocol merge=containerPort : List of ports to expose from the container.
  envFrom                   [any] : List of sources to populate environment variables in the container.
  env                       [EnvVar] keys=name merge=name : List of environment variables to set in the container.
  resources                 ResourceRequirements : Compute Resources required by this container.
  resizePolicy              [any] : Resources resize policy for the container.
  restartPolicy             *string : RestartPolicy defines the restart behavior of individual containers in a pod.
  restartPolicyRules        [any] : Represents a list of rules to be checked to determine if the container should be restarted on exit.
  volumeMounts              [any] : Pod volumes to mount into the container's filesystem.
  volumeDevices             [any] : volumeDevices is the list of block devices to be used by the container.
  livenessProbe             *any : Periodic probe of container liveness.
  readinessProbe            *any : Periodic probe of container service readiness.
  startupProbe              *any : StartupProbe indicates that the Pod has successfully initialized.
  lifecycle                 *any : Actions that the management system should take in response to container lifecycle events.
  terminationMessagePath    string : Path at which the container's termination message will be written.
  terminationMessagePolicy  string : Indicate how the termination message should be populated.
  imagePullPolicy           string : Image pull policy. One of Always, Never, IfNotPresent.
  securityContext           *any : SecurityContext defines the security options the container should be run with.
  stdin                     bool : Whether this container should allocate a buffer for stdin in the container runtime.
  stdinOnce                 bool : Whether the container runtime should close the stdin channel after a single attach.
  tty                       bool : Whether this container should allocate a TTY for itself.

PodReadinessGate = io.k8s.api.core.v1 : PodReadinessGate contains the reference to a pod condition.
  conditionType  string! required : ConditionType refers to a condition in the pod's condition list with matching type.

PodSpec = io.k8s.api.core.v1 : PodSpec is a description of a pod.
  volumes                        [any] : List of volumes that can be mounted by containers belonging to the pod.
  initContainers                 [Container] keys=name merge=name : List of initialization containers belonging to the pod.
  containers                     [Container]! required keys=name merge=name : List of containers belonging to the pod.
  ephemeralContainers            [any] : List of ephemeral containers run in this pod.
  restartPolicy                  string : Restart policy for all containers within the pod. One of Always, OnFailure, Never.
  terminationGracePeriodSeconds  *int64 : Optional duration in seconds the pod needs to terminate gracefully.
  activeDeadlineSeconds          *int64 : Optional duration in seconds the pod may be active on the node relative to StartTime.
  dnsPolicy                      string : Set DNS policy for the pod. Defaults to "ClusterFirst".
  nodeSelector                   {string} atomic : NodeSelector is a selector which must be true for the pod to fit on a node.
  serviceAccountName             string : ServiceAccountName is the name of the ServiceAccount to use to run this pod.
  serviceAccount                 string : DeprecatedServiceAccount is a deprecated alias for ServiceAccountName.
  automountServiceAccountToken   *bool : AutomountServiceAccountToken indicates whether a service account token should be automatically mounted.
  nodeName                       string : NodeName indicates in which node this pod is scheduled.
  hostNetwork                    bool : Host networking requested for this pod. Use the host's network namespace.
  hostPID                        bool : Use the host's pid namespace.
  hostIPC                        bool : Use the host's ipc namespace.
  shareProcessNamespace          *bool : Share a single process namespace between all of the containers in a pod.
  securityContext                *any : SecurityContext holds pod-level security attributes and common container settings.
  imagePullSecrets               [any] : ImagePullSecrets is an optional list of references to secrets in the same namespace.
  hostname                       string : Specifies the hostname of the Pod.
  subdomain                      string : If specified, the fully qualified Pod hostname will be "<hostname>.<subdomain>.<pod namespace>.svc.<cluster domain>".
  affinity                       *any : If specified, the pod's scheduling constraints.
  schedulerName                  string : If specified, the pod will be dispatched by specified scheduler.
  tolerations                    [any] : If specified, the pod's tolerations.
  hostAliases                    [any] : HostAliases is an optional list of hosts and IPs that will be injected into the pod's hosts file.
  priorityClassName              string : If specified, indicates the pod's priority.
  priority                       *int32 : The priority value.
  dnsConfig                      *any : Specifies the DNS parameters of a pod.
  readinessGates                 [PodReadinessGate] : If specified, all readiness gates will be evaluated for pod readiness.
  runtimeClassName               *string : RuntimeClassName refers to a RuntimeClass object in the node.k8s.io group.
  enableServiceLinks             *bool : EnableServiceLinks indicates whether information about services should be injected into pod's environment variables.
  preemptionPolicy               *string : PreemptionPolicy is the Policy for preempting pods with lower priority.
  overhead                       {quantity} : Overhead represents the resource overhead associated with running a pod for a given RuntimeClass.
  topologySpreadConstraints      [any] : TopologySpreadConstraints describes how a group of pods ought to spread across topology domains.
  setHostnameAsFQDN              *bool : If true the pod's hostname will be configured as the pod's FQDN.
  os                             *any : Specifies the OS of the containers in the pod.
  hostUsers                      *bool : Use the host's user namespace.
  schedulingGates                [any] : SchedulingGates is an opaque list of values that if specified will block scheduling the pod.
  resourceClaims                 [any] : ResourceClaims defines which ResourceClaims must be allocated and reserved before the Pod is allowed to start.
  resources                      *ResourceRequirements : Resources is the total amount of CPU and Memory resources required by all containers in the pod.
  hostnameOverride               *string : HostnameOverride specifies an explicit override for the pod's hostname.

PodCondition = io.k8s.api.core.v1 : PodCondition contains details for the current condition of this pod.
  type                string! required : Type is the type of the condition.
  observedGeneration  int64 : If set, this represents the .metadata.generation that the pod condition was set based upon.
  status              string! required : Status is the status of the condition.
  lastProbeTime       time : Last time we probed the condition.
  lastTransitionTime  time : Last time the condition transitioned from one status to another.
  reason              string : Unique, one-word, CamelCase reason for the condition's last transition.
  message             string : Human-readable message indicating details about last transition.

HostIP = io.k8s.api.core.v1 : HostIP represents a single IP address allocated to the host.
  ip  string! required : IP is the IP address assigned to the host.

PodIP = io.k8s.api.core.v1 : PodIP represents a single IP address allocated to the pod.
  ip  string! required : IP is the IP address assigned to the pod.

PodStatus = io.k8s.api.core.v1 : PodStatus represents information about the status of a pod.
  observedGeneration          int64 : If set, this represents the .metadata.generation that the pod status was set based upon.
  phase                       string : The phase of a Pod is a simple, high-level summary of where the Pod is in its lifecycle.
  conditions                  [PodCondition] keys=type merge=type : Current service state of pod.
  message                     string : A human readable message indicating details about why the pod is in this condition.
  reason                      string : A brief CamelCase message indicating details about why the pod is in this state.
  nominatedNodeName           string : nominatedNodeName is set only when this pod preempts other pods on the node.
  hostIP                      string : hostIP holds the IP address of the host to which the pod is assigned.
  hostIPs                     [HostIP] merge=ip : hostIPs holds the IP addresses allocated to the host.
  podIP                       string : podIP address allocated to the pod.
  podIPs                      [PodIP] keys=ip merge=ip : podIPs holds the IP addresses allocated to the pod.
  startTime                   *time : RFC 3339 date and time at which the object was acknowledged by the Kubelet.
  initContainerStatuses       [any] : Statuses of init containers in this pod.
  containerStatuses           [any] : Statuses of containers in this pod.
  qosClass                    string : The Quality of Service (QOS) classification assigned to the pod based on resource requirements.
  ephemeralContainerStatuses  [any] : Statuses for any ephemeral containers that have run in this pod.
  resize                      string : Status of resources resize desired for pod's containers.
  resourceClaimStatuses       [any] : Status of resource claims.

Pod = io.k8s.api.core.v1 : Pod is a collection of containers that can run on a host. This resource is created by clients and scheduled onto hosts.
  metadata  ObjectMeta : Standard object's metadata.
  spec      PodSpec : Specification of the desired behavior of the pod.
  status    PodStatus : Most recently observed status of the pod.
""")


_DEFAULT_GRACE_SECONDS = 30
_RESTARTS = ("Always", "Never", "OnFailure")
_DNS = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def default_pod(pod: Document) -> None:
    """core/v1 SetDefaults_Pod, Container and ContainerPort, as far as clients look at it."""
    spec = pod["spec"]
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
            if spec.get("hostNetwork"):
                port.setdefault("hostPort", port["containerPort"])
    status = pod["status"]
    first = status.get("podIP")
    if first and [entry["ip"] for entry in status.get("podIPs") or []][:1] != [first]:
        # They say the same, and podIP wins (Convert_v1_PodStatus_To_core_PodStatus).
        status["podIPs"] = [{"ip": first}]
    elif status.get("podIPs") and not first:
        status["podIP"] = status["podIPs"][0]["ip"]


def validate_pod(pod: Document) -> list[FieldError]:
    """Containers with unique names and valid ports; addresses that are addresses."""
    spec = pod["spec"]
    containers: list[Document] = spec.get("containers") or []
    errors = [] if containers else [required("spec.containers")]
    names: set[str] = set()
    for index, container in enumerate(containers):
        field = f"spec.containers[{index}]"
        name = container.get("name", "")
        errors += checked(f"{field}.name", name, dns_label(name)) if name else [required(f"{field}.name")]
        errors += [duplicate(f"{field}.name", name)] if name and name in names else []
        names.add(name)
        if not container.get("image"):
            errors.append(required(f"{field}.image"))
        errors += _container_ports(
            container.get("ports") or [], f"{field}.ports", shared=spec.get("hostNetwork", False)
        )
    if spec.get("nodeName"):
        errors += checked("spec.nodeName", spec["nodeName"], dns_subdomain(spec["nodeName"]))
    for part, known in (("restartPolicy", _RESTARTS), ("dnsPolicy", _DNS)):
        if spec.get(part) not in known:
            errors.append(unsupported(f"spec.{part}", spec.get(part, ""), known))
    for part in ("hostname", "subdomain"):
        if spec.get(part):
            errors += checked(f"spec.{part}", spec[part], dns_label(spec[part]))
    errors += [
        invalid(f"status.podIPs[{index}]", entry["ip"], IP_EXAMPLE)
        for index, entry in enumerate(pod["status"].get("podIPs") or [])
        if parse_ip(entry["ip"]) is None
    ]
    return errors


def _container_ports(ports: list[Document], field: str, *, shared: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{field}[{index}]"
        name = port.get("name", "")
        errors += checked(f"{at}.name", name, port_name(name)) if name else []
        errors += [duplicate(f"{at}.name", name)] if name and name in names else []
        names.add(name)
        errors += checked(f"{at}.containerPort", port["containerPort"], port_number(port["containerPort"]))
        if port.get("protocol") not in PROTOCOLS:
            errors.append(unsupported(f"{at}.protocol", port.get("protocol", ""), PROTOCOLS))
        if shared and port.get("hostPort") not in (None, 0, port["containerPort"]):
            why = "must match `hostPort` when `hostNetwork` is true"
            errors.append(invalid(f"{at}.containerPort", port["containerPort"], why))
    return errors


def validate_pod_update(pod: Document, old: Document) -> list[FieldError]:
    """A pod stays what it is: containers' names and ports, and the node once bound."""
    errors = validate_pod(pod)
    spec, before = pod["spec"], old["spec"]
    bound = before.get("nodeName") and before.get("nodeName") != spec.get("nodeName")
    if bound or [_frozen(c) for c in spec["containers"] or []] != [_frozen(c) for c in before["containers"] or []]:
        why = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
            " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        errors.append(forbidden("spec", why))
    return errors


def _frozen(container: Document) -> Document:
    return {name: value for name, value in container.items() if name not in ("image", "resources")}


class PodLife(Plain):
    """A new pod is pending, whatever its creator says."""

    def __init__(self) -> None:
        super().__init__(has_status=True)

    def prepare_create(self, document: Document) -> None:
        """Pending; the QoS class is that of a pod without resources unless it has some."""
        asks = [container.get("resources") or {} for container in document["spec"].get("containers") or []]
        quality = "Burstable" if any(ask.get("limits") or ask.get("requests") for ask in asks) else "BestEffort"
        document["status"] = {"phase": "Pending", "qosClass": quality}

    def grace_seconds(self, live: Document, asked: int | None) -> int:
        """None for one that never ran or has ended (pkg/registry/core/pod CheckGracefulDelete)."""
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
        # Releases before 1.0 called it so; of podIPs kube-apiserver keeps nothing to select by.
        field_sources={"spec.host": ("spec.nodeName",), "status.podIPs": ()},
        storage_hash="xPOwRZ+Yhw8=",
        lifecycle=lambda _: PodLife(),
    ),
)
