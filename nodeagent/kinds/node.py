"""Node (core/v1): a machine. Checks what the controllers and the agent rely on, less than kube-apiserver does."""

from collections.abc import Iterator
from dataclasses import replace

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import field_errors, label_value, qualified_name
from nodeagent.kinds.description.life import KindLife
from nodeagent.kinds.description.object_rules import networks
from nodeagent.kinds.description.printing import AGE, NONE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, duplicate, forbidden, unsupported

SHAPES = read_shapes(r"""
Node = io.k8s.api.core.v1 : Node is a worker node in Kubernetes. Each node will have a unique identifier in the cache (i.e. in etcd).
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      NodeSpec #2 : Spec defines the behavior of a node.
  status    NodeStatus #3 : Most recently observed status of the node.

NodeSpec = io.k8s.api.core.v1 : NodeSpec describes the attributes that a node is created with.
  podCIDR        string #1 : PodCIDR represents the pod IP range assigned to the node.
  podCIDRs       [string] set merge= #7 : podCIDRs represents the IP ranges assigned to the node for usage by Pods on that node.
  providerID     string #3 : ID of the node assigned by the cloud provider.
  unschedulable  bool #4 : Unschedulable controls node schedulability of new pods.
  taints         [Taint] #5 : If specified, the node's taints.
  configSource   *NodeConfigSource #6 : Deprecated: source of the node's configuration.
  externalID     string #2 : Deprecated.

NodeStatus = io.k8s.api.core.v1 : NodeStatus is information about the current status of a node.
  capacity          {quantity} #1 : Capacity represents the total resources of a node.
  allocatable       {quantity} #2 : Allocatable represents the resources of a node that are available for scheduling.
  phase             string #3 : Deprecated.
  conditions        [NodeCondition] keys=type merge=type #4 : Conditions is an array of current observed node conditions.
  addresses         [NodeAddress] keys=type merge=type #5 : List of addresses reachable to the node.
  daemonEndpoints   NodeDaemonEndpoints #6 : Endpoints of daemons running on the Node.
  nodeInfo          NodeSystemInfo #7 : Set of ids/uuids to uniquely identify the node.
  images            [ContainerImage] #8 : List of container images on this node.
  volumesInUse      [string] #9 : List of attachable volumes in use (mounted) by the node.
  volumesAttached   [AttachedVolume] #10 : List of volumes that are attached to the node.
  config            *NodeConfigStatus #11 : Status of the config assigned to the node via the dynamic Kubelet config feature.
  runtimeHandlers   [NodeRuntimeHandler] #12 : The available runtime handlers.
  features          *NodeFeatures #13 : Features describes the set of features implemented by the CRI implementation.
  declaredFeatures  [string] #14 : DeclaredFeatures represents the features related to feature gates that are declared by the node.

Taint = io.k8s.api.core.v1 : The node this Taint is attached to has the "effect" on any pod that does not tolerate the Taint.
  key        string! required #1 : The taint key to be applied to a node.
  value      string #2 : The taint value corresponding to the taint key.
  effect     string! required #3 : The effect of the taint on pods that do not tolerate the taint.
  timeAdded  *time #4 : TimeAdded represents the time at which the taint was added.

NodeConfigSource = io.k8s.api.core.v1; configMap *ConfigMapNodeConfigSource #2

NodeCondition = io.k8s.api.core.v1 : NodeCondition contains condition information for a node.
  type                string! required #1 : Type of node condition.
  status              string! required #2 : Status of the condition, one of True, False, Unknown.
  lastHeartbeatTime   time! #3 : Last time we got an update on a given condition.
  lastTransitionTime  time! #4 : Last time the condition transit from one status to another.
  reason              string #5 : (brief) reason for the condition's last transition.
  message             string #6 : Human readable message indicating details about last transition.

NodeAddress = io.k8s.api.core.v1 : NodeAddress contains information for the node's address.
  type     string! required #1 : Node address type, one of Hostname, ExternalIP or InternalIP.
  address  string! required #2 : The node address.

NodeDaemonEndpoints = io.k8s.api.core.v1 : NodeDaemonEndpoints lists ports opened by daemons running on the Node.
  kubeletEndpoint  DaemonEndpoint #1 : Endpoint on which Kubelet is listening.

NodeSystemInfo = io.k8s.api.core.v1 : NodeSystemInfo is a set of ids/uuids to uniquely identify the node.
  machineID                string! required #1 : MachineID reported by the node.
  systemUUID               string! required #2 : SystemUUID reported by the node.
  bootID                   string! required #3 : Boot ID reported by the node.
  kernelVersion            string! required #4 : Kernel Version reported by the node from 'uname -r'.
  osImage                  string! required #5 : OS Image reported by the node from /etc/os-release.
  containerRuntimeVersion  string! required #6 : ContainerRuntime Version reported by the node.
  kubeletVersion           string! required #7 : Kubelet Version reported by the node.
  kubeProxyVersion         string! required #8 : Deprecated: KubeProxy Version reported by the node.
  operatingSystem          string! required #9 : The Operating System reported by the node.
  architecture             string! required #10 : The Architecture reported by the node.
  swap                     *NodeSwapStatus #11 : Swap Info reported by the node.

ContainerImage = io.k8s.api.core.v1; names [string]! #1; sizeBytes int64 #2
AttachedVolume = io.k8s.api.core.v1; name string! required #1; devicePath string! required #2
NodeConfigStatus = io.k8s.api.core.v1; assigned *NodeConfigSource #1; active *NodeConfigSource #2; lastKnownGood *NodeConfigSource #3; error string #4
NodeRuntimeHandler = io.k8s.api.core.v1; name string! #1; features *NodeRuntimeHandlerFeatures #2
NodeFeatures = io.k8s.api.core.v1; supplementalGroupsPolicy *bool #1
ConfigMapNodeConfigSource = io.k8s.api.core.v1
  namespace string! required #1; name string! required #2; uid string #3; resourceVersion string #4; kubeletConfigKey string! required #5

DaemonEndpoint = io.k8s.api.core.v1 : DaemonEndpoint contains information about a single Daemon endpoint.
  Port  int32! required #1 : Port number of the given endpoint.

NodeSwapStatus = io.k8s.api.core.v1; capacity *int64 #1
NodeRuntimeHandlerFeatures = io.k8s.api.core.v1; recursiveReadOnlyMounts *bool #1; userNamespaces *bool #2
""")


_TAINT_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")


def default_node(node: Document) -> None:
    """Makes `podCIDR` and `podCIDRs` equal (conversion of core/v1 Node)."""
    spec = node["spec"]
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    if spec.get("podCIDRs") and not spec.get("podCIDR"):
        spec["podCIDR"] = spec["podCIDRs"][0]


def validate_node(node: Document) -> Iterator[FieldError]:
    """Yields errors: pod ranges must be valid, with at most one for each family; taints must be complete."""
    one_each = "may specify no more than one CIDR for each IP family"
    yield from networks(node["spec"].get("podCIDRs") or [], "spec.podCIDRs", one_each)
    pairs: set[tuple[str, str]] = set()
    for index, taint in enumerate(node["spec"].get("taints") or []):
        if (taint["key"], taint["effect"]) in pairs:
            again = duplicate(f"spec.taints[{index}]", taint)
            yield replace(again, text=f"{again.text}: taints must be unique by key and effect pair")
        pairs.add((taint["key"], taint["effect"]))
        field = f"spec.taints[{index}]"
        yield from field_errors(f"{field}.key", taint["key"], qualified_name(taint["key"]))
        yield from field_errors(f"{field}.value", taint.get("value", ""), label_value(taint.get("value", "")))
        if taint["effect"] not in _TAINT_EFFECTS:
            yield unsupported(f"{field}.effect", taint["effect"], _TAINT_EFFECTS)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(node["status"].get("addresses") or []):
        pair = (address["type"], address["address"])
        yield from [duplicate(f"status.addresses[{index}]", address)] if pair in seen else []
        seen.add(pair)


def validate_node_update(node: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change: pod ranges are immutable once set."""
    yield from validate_node(node)
    before = old["spec"].get("podCIDRs")
    if before and before != node["spec"].get("podCIDRs"):
        yield forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    status, labels = document["status"], document["metadata"].get("labels") or {}
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    state = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown" if ready == "Unknown" else "NotReady")
    if ready == "Unknown" and status.get("conditions"):
        state = "NotReady"
    if document["spec"].get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or NONE
    addresses = {entry["type"]: entry["address"] for entry in reversed(status.get("addresses") or [])}
    info = status.get("nodeInfo") or {}
    return [
        name,
        state,
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
        own_life=KindLife(has_status=True, keeps_status_on_create=True),
    ),
)
