"""Node (core/v1): a machine. Checked is what the controllers and the agent rely on, not everything upstream checks."""

from dataclasses import replace

from nodeagent.controlplane.addresses.ranges import BOTH_FAMILIES
from nodeagent.controlplane.addresses.texts import parse_cidr
from nodeagent.controlplane.documents import Document, Json
from nodeagent.controlplane.machinery.formats import checked, label_value, qualified_name
from nodeagent.controlplane.machinery.lifecycle import Plain
from nodeagent.controlplane.machinery.printing import AGE, NONE, Column, Printer, name_and_age
from nodeagent.controlplane.machinery.resources import Resource
from nodeagent.controlplane.machinery.schema.shared import read_shapes
from nodeagent.controlplane.status import FieldError, duplicate, forbidden, invalid, unsupported

SHAPES = read_shapes(r"""
Taint = io.k8s.api.core.v1 : The node this Taint is attached to has the "effect" on any pod that does not tolerate the Taint.
  key        string! required : The taint key to be applied to a node.
  value      string : The taint value corresponding to the taint key.
  effect     string! required : The effect of the taint on pods that do not tolerate the taint.
  timeAdded  *time : TimeAdded represents the time at which the taint was added.

NodeSpec = io.k8s.api.core.v1 : NodeSpec describes the attributes that a node is created with.
  podCIDR        string : PodCIDR represents the pod IP range assigned to the node.
  podCIDRs       [string] set merge= : podCIDRs represents the IP ranges assigned to the node for usage by Pods on that node.
  providerID     string : ID of the node assigned by the cloud provider.
  unschedulable  bool : Unschedulable controls node schedulability of new pods.
  taints         [Taint] : If specified, the node's taints.
  configSource   *any : Deprecated: source of the node's configuration.
  externalID     string : Deprecated.

NodeCondition = io.k8s.api.core.v1 : NodeCondition contains condition information for a node.
  type                string! required : Type of node condition.
  status              string! required : Status of the condition, one of True, False, Unknown.
  lastHeartbeatTime   time : Last time we got an update on a given condition.
  lastTransitionTime  time : Last time the condition transit from one status to another.
  reason              string : (brief) reason for the condition's last transition.
  message             string : Human readable message indicating details about last transition.

NodeAddress = io.k8s.api.core.v1 : NodeAddress contains information for the node's address.
  type     string! required : Node address type, one of Hostname, ExternalIP or InternalIP.
  address  string! required : The node address.

DaemonEndpoint = io.k8s.api.core.v1 : DaemonEndpoint contains information about a single Daemon endpoint.
  Port  int32! required : Port number of the given endpoint.

NodeDaemonEndpoints = io.k8s.api.core.v1 : NodeDaemonEndpoints lists ports opened by daemons running on the Node.
  kubeletEndpoint  DaemonEndpoint : Endpoint on which Kubelet is listening.

NodeSystemInfo = io.k8s.api.core.v1 : NodeSystemInfo is a set of ids/uuids to uniquely identify the node.
  machineID                string! : MachineID reported by the node.
  systemUUID               string! : SystemUUID reported by the node.
  bootID                   string! : Boot ID reported by the node.
  kernelVersion            string! : Kernel Version reported by the node from 'uname -r'.
  osImage                  string! : OS Image reported by the node from /etc/os-release.
  containerRuntimeVersion  string! : ContainerRuntime Version reported by the node.
  kubeletVersion           string! : Kubelet Version reported by the node.
  kubeProxyVersion         string! : Deprecated: KubeProxy Version reported by the node.
  operatingSystem          string! : The Operating System reported by the node.
  architecture             string! : The Architecture reported by the node.
  swap                     *any : Swap Info reported by the node.

NodeStatus = io.k8s.api.core.v1 : NodeStatus is information about the current status of a node.
  capacity          {quantity} : Capacity represents the total resources of a node.
  allocatable       {quantity} : Allocatable represents the resources of a node that are available for scheduling.
  phase             string : Deprecated.
  conditions        [NodeCondition] keys=type merge=type : Conditions is an array of current observed node conditions.
  addresses         [NodeAddress] keys=type merge=type : List of addresses reachable to the node.
  daemonEndpoints   NodeDaemonEndpoints : Endpoints of daemons running on the Node.
  nodeInfo          NodeSystemInfo : Set of ids/uuids to uniquely identify the node.
  images            [any] : List of container images on this node.
  volumesInUse      [string] : List of attachable volumes in use (mounted) by the node.
  volumesAttached   [any] : List of volumes that are attached to the node.
  config            *any : Status of the config assigned to the node via the dynamic Kubelet config feature.
  runtimeHandlers   [any] : The available runtime handlers.
  features          *any : Features describes the set of features implemented by the CRI implementation.
  declaredFeatures  [string] : DeclaredFeatures represents the features related to feature gates that are declared by the node.

Node = io.k8s.api.core.v1 : Node is a worker node in Kubernetes. Each node will have a unique identifier in the cache (i.e. in etcd).
  metadata  ObjectMeta : Standard object's metadata.
  spec      NodeSpec : Spec defines the behavior of a node.
  status    NodeStatus : Most recently observed status of the node.
""")


_TAINT_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def default_node(node: Document) -> None:
    """`podCIDR` and `podCIDRs` say the same (conversion of core/v1 Node); the name is a label."""
    spec = node["spec"]
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    if spec.get("podCIDRs") and not spec.get("podCIDR"):
        spec["podCIDR"] = spec["podCIDRs"][0]


def validate_node(node: Document) -> list[FieldError]:
    """Pod ranges: valid, one per family. Taints: complete."""
    errors: list[FieldError] = []
    ranges: list[str] = node["spec"].get("podCIDRs") or []
    for index, text in enumerate(ranges):
        if parse_cidr(text) is None:
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            errors.append(invalid(f"spec.podCIDRs[{index}]", text, why))
    families = [parsed.version for parsed in map(parse_cidr, ranges) if parsed]
    if len(ranges) > BOTH_FAMILIES or len(set(families)) != len(families):
        errors.append(invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family"))
    pairs: set[tuple[str, str]] = set()
    for index, taint in enumerate(node["spec"].get("taints") or []):
        if (taint["key"], taint["effect"]) in pairs:
            again = duplicate(f"spec.taints[{index}]", taint)
            errors.append(replace(again, text=f"{again.text}: taints must be unique by key and effect pair"))
        pairs.add((taint["key"], taint["effect"]))
        field = f"spec.taints[{index}]"
        errors += checked(f"{field}.key", taint["key"], qualified_name(taint["key"]))
        errors += checked(f"{field}.value", taint.get("value", ""), label_value(taint.get("value", "")))
        if taint["effect"] not in _TAINT_EFFECTS:
            errors.append(unsupported(f"{field}.effect", taint["effect"], _TAINT_EFFECTS))
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(node["status"].get("addresses") or []):
        pair = (address["type"], address["address"])
        errors += [duplicate(f"status.addresses[{index}]", address)] if pair in seen else []
        seen.add(pair)
    return errors


def validate_node_update(node: Document, old: Document) -> list[FieldError]:
    """Pod ranges do not change once set."""
    errors = validate_node(node)
    before = old["spec"].get("podCIDRs")
    if before and before != node["spec"].get("podCIDRs"):
        errors.append(forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'))
    return errors


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    status, labels = document["status"], document["metadata"].get("labels") or {}
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    said = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown" if ready == "Unknown" else "NotReady")
    if ready == "Unknown" and status.get("conditions"):
        said = "NotReady"
    if document["spec"].get("unschedulable"):
        said += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or NONE
    addresses = {entry["type"]: entry["address"] for entry in reversed(status.get("addresses") or [])}
    info = status.get("nodeInfo") or {}
    return [
        name,
        said,
        roles,
        old,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


PRINTER = Printer(
    (
        Column("Status", description="The status of the node"),
        Column("Roles", description="The roles of the node"),
        AGE,
        Column("Version", description="Kubelet Version reported by the node."),
        Column("Internal-IP", described_by="status.addresses", priority=1),
        Column("External-IP", described_by="status.addresses", priority=1),
        Column("OS-Image", description="OS Image reported by the node from /etc/os-release.", priority=1),
        Column("Kernel-Version", description="Kernel Version reported by the node from 'uname -r'.", priority=1),
        Column("Container-Runtime", description="ContainerRuntime Version reported by the node.", priority=1),
    ),
    _cells,
)


ROWS = (
    Resource(
        plural="nodes",
        place="minions",
        singular="node",
        kind="Node",
        struct=SHAPES["Node"],
        short_names=("no",),
        printer=PRINTER,
        namespaced=False,
        has_status=True,
        default=default_node,
        validate=validate_node,
        validate_update=validate_node_update,
        fields=("spec.unschedulable",),
        storage_hash="XwShjMxG9Fs=",
        lifecycle=lambda _: Plain(has_status=True, keeps_status_on_create=True),
    ),
)
