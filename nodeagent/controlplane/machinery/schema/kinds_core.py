"""Namespace, Node, Pod, Event, Lease, ConfigMap, Secret and ServiceAccount.

Pods are here for their addresses, ports, labels and readiness. Their other fields are kept as given (`any`): nothing
in this control plane runs containers, so nothing could honour or judge them.
"""

KINDS = r"""
NamespaceSpec = io.k8s.api.core.v1 : NamespaceSpec describes the attributes on a Namespace.
  finalizers  [string] : Finalizers is an opaque list of values that must be empty to permanently remove object from storage.

NamespaceCondition = io.k8s.api.core.v1 : NamespaceCondition contains details about state of namespace.
  type                string! required : Type of namespace controller condition.
  status              string! required : Status of the condition, one of True, False, Unknown.
  lastTransitionTime  time : Last time the condition transitioned from one status to another.
  reason              string : Unique, one-word, CamelCase reason for the condition's last transition.
  message             string : Human-readable message indicating details about last transition.

NamespaceStatus = io.k8s.api.core.v1 : NamespaceStatus is information about the current status of a Namespace.
  phase       string : Phase is the current lifecycle phase of the namespace.
  conditions  [NamespaceCondition] keys=type merge=type : Represents the latest available observations of a namespace's current state.

Namespace = io.k8s.api.core.v1 : Namespace provides a scope for Names. Use of multiple namespaces is optional.
  metadata  ObjectMeta : Standard object's metadata.
  spec      NamespaceSpec : Spec defines the behavior of the Namespace.
  status    NamespaceStatus : Status describes the current status of a Namespace.

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

EventSource = io.k8s.api.core.v1 : EventSource contains information for an event.
  component  string : Component from which the event is generated.
  host       string : Node name on which the event is generated.

EventSeries = io.k8s.api.core.v1 : EventSeries contain information on series of events, i.e. thing that was/is happening continuously for some time.
  count             int32 : Number of occurrences in this series up to the last heartbeat time.
  lastObservedTime  microtime : Time of the last occurrence observed.

CoreEvent = io.k8s.api.core.v1 as=Event : Event is a report of an event somewhere in the cluster.
  metadata            ObjectMeta : Standard object's metadata.
  involvedObject      ObjectReference required : The object that this event is about.
  reason              string : This should be a short, machine understandable string that gives the reason for the transition into the object's current status.
  message             string : A human-readable description of the status of this operation.
  source              EventSource : The component reporting this event. Should be a short machine understandable string.
  firstTimestamp      time! : The time at which the event was first recorded.
  lastTimestamp       time! : The time at which the most recent occurrence of this event was recorded.
  count               int32 : The number of times this event has occurred.
  type                string : Type of this event (Normal, Warning), new types could be added in the future.
  eventTime           microtime! : Time when this Event was first observed.
  series              *EventSeries : Data about the Event series this event represents or nil if it's a singleton Event.
  action              string : What action was taken/failed regarding to the Regarding object.
  related             *ObjectReference : Optional secondary object for more complex actions.
  reportingComponent  string! : Name of the controller that emitted this Event, e.g. `kubernetes.io/kubelet`.
  reportingInstance   string! : ID of the controller instance, e.g. `kubelet-xyzf`.

Event = io.k8s.api.events.v1 : Event is a report of an event somewhere in the cluster. It generally denotes some state change in the system.
  metadata                  ObjectMeta : Standard object's metadata.
  eventTime                 microtime! required : eventTime is the time when this Event was first observed.
  series                    *EventSeries : series is data about the Event series this event represents or nil if it's a singleton Event.
  reportingController       string : reportingController is the name of the controller that emitted this Event.
  reportingInstance         string : reportingInstance is the ID of the controller instance.
  action                    string : action is what action was taken/failed regarding to the regarding object.
  reason                    string : reason is why the action was taken. It is human-readable.
  regarding                 ObjectReference : regarding contains the object this Event is about.
  related                   *ObjectReference : related is the optional secondary object for more complex actions.
  note                      string : note is a human-readable description of the status of this operation.
  type                      string : type is the type of this event (Normal, Warning).
  deprecatedSource          EventSource : deprecatedSource is the deprecated field assuring backward compatibility with core.v1 Event type.
  deprecatedFirstTimestamp  time! : deprecatedFirstTimestamp is the deprecated field assuring backward compatibility with core.v1 Event type.
  deprecatedLastTimestamp   time! : deprecatedLastTimestamp is the deprecated field assuring backward compatibility with core.v1 Event type.
  deprecatedCount           int32 : deprecatedCount is the deprecated field assuring backward compatibility with core.v1 Event type.

LeaseSpec = io.k8s.api.coordination.v1 : LeaseSpec is a specification of a Lease.
  holderIdentity        *string : holderIdentity contains the identity of the holder of a current lease.
  leaseDurationSeconds  *int32 : leaseDurationSeconds is a duration that candidates for a lease need to wait to force acquire it.
  acquireTime           *microtime : acquireTime is a time when the current lease was acquired.
  renewTime             *microtime : renewTime is a time when the current holder of a lease has last updated the lease.
  leaseTransitions      *int32 : leaseTransitions is the number of transitions of a lease between holders.
  strategy              *string : Strategy indicates the strategy for picking the leader for coordinated leader election.
  preferredHolder       *string : PreferredHolder signals to a lease holder that the lease has a more optimal holder.

Lease = io.k8s.api.coordination.v1 : Lease defines a lease concept.
  metadata  ObjectMeta : Standard object's metadata.
  spec      LeaseSpec : spec contains the specification of the Lease.

ConfigMap = io.k8s.api.core.v1 : ConfigMap holds configuration data for pods to consume.
  metadata    ObjectMeta : Standard object's metadata.
  immutable   *bool : Immutable, if set to true, ensures that data stored in the ConfigMap cannot be updated.
  data        {string} : Data contains the configuration data.
  binaryData  {bytes} : BinaryData contains the binary data.

Secret = io.k8s.api.core.v1 : Secret holds secret data of a certain type.
  metadata    ObjectMeta : Standard object's metadata.
  immutable   *bool : Immutable, if set to true, ensures that data stored in the Secret cannot be updated.
  data        {bytes} : Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'.
  stringData  {string} : stringData allows specifying non-binary secret data in string form.
  type        string : Used to facilitate programmatic handling of secret data.

LocalObjectReference = io.k8s.api.core.v1 : LocalObjectReference contains enough information to let you locate the referenced object inside the same namespace.
  name  string : Name of the referent.

ServiceAccount = io.k8s.api.core.v1 : ServiceAccount binds together a name, a principal that can be authenticated and authorized, and a set of secrets.
  metadata                      ObjectMeta : Standard object's metadata.
  secrets                       [ObjectReference] keys=name merge=name : Deprecated: Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are allowed to use.
  imagePullSecrets              [LocalObjectReference] : ImagePullSecrets is a list of references to secrets in the same namespace to use for pulling any images in pods that reference this ServiceAccount.
  automountServiceAccountToken  *bool : AutomountServiceAccountToken indicates whether pods running as this service account should have an API token automatically mounted.
"""
