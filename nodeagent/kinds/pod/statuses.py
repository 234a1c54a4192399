"""The schemas of a pod's status."""

from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.pod import containers

SHAPES = read_shapes(
    r"""
PodStatus = io.k8s.api.core.v1 : PodStatus represents information about the status of a pod.
  observedGeneration                    int64 #17 : If set, this represents the .metadata.generation that the pod status was set based upon.
  phase                                 string #1 : The phase of a Pod is a simple, high-level summary of where the Pod is in its lifecycle.
  conditions                            [PodCondition] keys=type merge=type #2 : Current service state of pod.
  message                               string #3 : A human readable message indicating details about why the pod is in this condition.
  reason                                string #4 : A brief CamelCase message indicating details about why the pod is in this state.
  nominatedNodeName                     string #11 : nominatedNodeName is set only when this pod preempts other pods on the node.
  hostIP                                string #5 : hostIP holds the IP address of the host to which the pod is assigned.
  hostIPs                               [HostIP] merge=ip #16 : hostIPs holds the IP addresses allocated to the host.
  podIP                                 string #6 : podIP address allocated to the pod.
  podIPs                                [PodIP] keys=ip merge=ip #12 : podIPs holds the IP addresses allocated to the pod.
  startTime                             *time #7 : RFC 3339 date and time at which the object was acknowledged by the Kubelet.
  initContainerStatuses                 [ContainerStatus] #10 : Statuses of init containers in this pod.
  containerStatuses                     [ContainerStatus] #8 : Statuses of containers in this pod.
  qosClass                              string #9 : The Quality of Service (QOS) classification assigned to the pod based on resource requirements.
  ephemeralContainerStatuses            [ContainerStatus] #13 : Statuses for any ephemeral containers that have run in this pod.
  resize                                string #14 : Status of resources resize desired for pod's containers.
  resourceClaimStatuses                 [PodResourceClaimStatus] keys=name merge=name #15 : Status of resource claims.
  extendedResourceClaimStatus           *PodExtendedResourceClaimStatus #18
  allocatedResources                    {quantity} #19
  resources                             *ResourceRequirements #20
  nodeAllocatableResourceClaimStatuses  [NodeAllocatableResourceClaimStatus] #21

PodCondition = io.k8s.api.core.v1 : PodCondition contains details for the current condition of this pod.
  type                string! required #1 : Type is the type of the condition.
  observedGeneration  int64 #7 : If set, this represents the .metadata.generation that the pod condition was set based upon.
  status              string! required #2 : Status is the status of the condition.
  lastProbeTime       time! #3 : Last time we probed the condition.
  lastTransitionTime  time! #4 : Last time the condition transitioned from one status to another.
  reason              string #5 : Unique, one-word, CamelCase reason for the condition's last transition.
  message             string #6 : Human-readable message indicating details about last transition.

HostIP = io.k8s.api.core.v1 : HostIP represents a single IP address allocated to the host.
  ip  string! required #1 : IP is the IP address assigned to the host.

PodIP = io.k8s.api.core.v1 : PodIP represents a single IP address allocated to the pod.
  ip  string! required #1 : IP is the IP address assigned to the pod.

ContainerStatus = io.k8s.api.core.v1
  name                      string! required #1
  state                     ContainerState #2
  lastState                 ContainerState #3
  ready                     bool! required #4
  restartCount              int32! required #5
  image                     string! required #6
  imageID                   string! required #7
  containerID               string #8
  started                   *bool #9
  allocatedResources        {quantity} #10
  resources                 *ResourceRequirements #11
  volumeMounts              [VolumeMountStatus] keys=mountPath merge=mountPath #12
  user                      *ContainerUser #13
  allocatedResourcesStatus  [ResourceStatus] keys=name merge=name #14
  stopSignal                *string #15

PodResourceClaimStatus = io.k8s.api.core.v1
  name               string! required #1
  resourceClaimName  *string #2

PodExtendedResourceClaimStatus = io.k8s.api.core.v1
  requestMappings    [ContainerExtendedResourceRequest]! required #1
  resourceClaimName  string! required #2

NodeAllocatableResourceClaimStatus = io.k8s.api.core.v1
  resourceClaimName  string! required #1
  containers         [string] set #2
  resources          {quantity}! required #3

ContainerState = io.k8s.api.core.v1
  waiting     *ContainerStateWaiting #1
  running     *ContainerStateRunning #2
  terminated  *ContainerStateTerminated #3

VolumeMountStatus = io.k8s.api.core.v1
  name               string! required #1
  mountPath          string! required #2
  readOnly           bool #3
  recursiveReadOnly  *string #4
  volumeStatus       *VolumeStatus #5

ContainerUser = io.k8s.api.core.v1
  linux  *LinuxContainerUser #1

ResourceStatus = io.k8s.api.core.v1
  name       string! required #1
  resources  [ResourceHealth] keys=resourceID #2

ContainerExtendedResourceRequest = io.k8s.api.core.v1
  containerName  string! required #1
  resourceName   string! required #2
  requestName    string! required #3

ContainerStateWaiting = io.k8s.api.core.v1
  reason   string #1
  message  string #2

ContainerStateRunning = io.k8s.api.core.v1
  startedAt  time! #1

ContainerStateTerminated = io.k8s.api.core.v1
  exitCode     int32! required #1
  signal       int32 #2
  reason       string #3
  message      string #4
  startedAt    time! #5
  finishedAt   time! #6
  containerID  string #7

VolumeStatus = io.k8s.api.core.v1
  image  *ImageVolumeStatus #1

LinuxContainerUser = io.k8s.api.core.v1
  uid                 int64! required #1
  gid                 int64! required #2
  supplementalGroups  [int64] #3

ResourceHealth = io.k8s.api.core.v1
  resourceID  string! required #1
  health      string #2
  message     *string #6

ImageVolumeStatus = io.k8s.api.core.v1
  imageRef  string required #1
""",
    containers.SHAPES,
)
