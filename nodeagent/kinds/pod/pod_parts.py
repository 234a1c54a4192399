"""The schemas of a pod's parts. Nothing is scheduled, run or mounted here: they are stored and shown as sent."""

from nodeagent.kinds.description.shared import read_shapes

SHAPES = read_shapes(r"""
Container = io.k8s.api.core.v1 : A single application container that you want to run within a pod.
  name                      string! required #1 : Name of the container specified as a DNS_LABEL.
  image                     string #2 : Container image name.
  command                   [string] #3 : Entrypoint array.
  args                      [string] #4 : Arguments to the entrypoint.
  workingDir                string #5 : Container's working directory.
  ports                     [ContainerPort] keys=containerPort,protocol merge=containerPort #6 : List of ports to expose from the container.
  envFrom                   [EnvFromSource] #19 : List of sources to populate environment variables in the container.
  env                       [EnvVar] keys=name merge=name #7 : List of environment variables to set in the container.
  resources                 ResourceRequirements #8 : Compute Resources required by this container.
  resizePolicy              [ContainerResizePolicy] #23 : Resources resize policy for the container.
  restartPolicy             *string #24 : RestartPolicy defines the restart behavior of individual containers in a pod.
  restartPolicyRules        [ContainerRestartRule] #25 : Represents a list of rules to be checked to determine if the container should be restarted on exit.
  volumeMounts              [VolumeMount] keys=mountPath merge=mountPath #9 : Pod volumes to mount into the container's filesystem.
  volumeDevices             [VolumeDevice] keys=devicePath merge=devicePath #21 : volumeDevices is the list of block devices to be used by the container.
  livenessProbe             *Probe #10 : Periodic probe of container liveness.
  readinessProbe            *Probe #11 : Periodic probe of container service readiness.
  startupProbe              *Probe #22 : StartupProbe indicates that the Pod has successfully initialized.
  lifecycle                 *Lifecycle #12 : Actions that the management system should take in response to container lifecycle events.
  terminationMessagePath    string #13 : Path at which the container's termination message will be written.
  terminationMessagePolicy  string #20 : Indicate how the termination message should be populated.
  imagePullPolicy           string #14 : Image pull policy. One of Always, Never, IfNotPresent.
  securityContext           *SecurityContext #15 : SecurityContext defines the security options the container should be run with.
  stdin                     bool #16 : Whether this container should allocate a buffer for stdin in the container runtime.
  stdinOnce                 bool #17 : Whether the container runtime should close the stdin channel after a single attach.
  tty                       bool #18 : Whether this container should allocate a TTY for itself.

EphemeralContainer = io.k8s.api.core.v1
  name string! required #1.1; image string #1.2; command [string] #1.3; args [string] #1.4; workingDir string #1.5
  ports [ContainerPort] keys=containerPort,protocol merge=containerPort #1.6; envFrom [EnvFromSource] #1.19; env [EnvVar] keys=name merge=name #1.7
  resources ResourceRequirements #1.8; resizePolicy [ContainerResizePolicy] #1.23; restartPolicy *string #1.24
  restartPolicyRules [ContainerRestartRule] #1.25; volumeMounts [VolumeMount] keys=mountPath merge=mountPath #1.9
  volumeDevices [VolumeDevice] keys=devicePath merge=devicePath #1.21; livenessProbe *Probe #1.10; readinessProbe *Probe #1.11
  startupProbe *Probe #1.22; lifecycle *Lifecycle #1.12; terminationMessagePath string #1.13; terminationMessagePolicy string #1.20
  imagePullPolicy string #1.14; securityContext *SecurityContext #1.15; stdin bool #1.16; stdinOnce bool #1.17; tty bool #1.18
  targetContainerName string #2

ContainerPort = io.k8s.api.core.v1 : ContainerPort represents a network port in a single container.
  name           string #1 : If specified, this must be an IANA_SVC_NAME and unique within the pod.
  hostPort       int32 #2 : Number of port to expose on the host.
  containerPort  int32! required #3 : Number of port to expose on the pod's IP address.
  protocol       string default=TCP #4 : Protocol for port. Must be UDP, TCP, or SCTP. Defaults to "TCP".
  hostIP         string #5 : What host IP to bind the external port to.

EnvFromSource = io.k8s.api.core.v1; prefix string #1; configMapRef *ConfigMapEnvSource #2; secretRef *SecretEnvSource #3

EnvVar = io.k8s.api.core.v1 : EnvVar represents an environment variable present in a Container.
  name       string! required #1 : Name of the environment variable.
  value      string #2 : Variable value.
  valueFrom  *EnvVarSource #3 : Source for the environment variable's value.

ResourceRequirements = io.k8s.api.core.v1 : ResourceRequirements describes the compute resource requirements.
  limits    {quantity} #1 : Limits describes the maximum amount of compute resources allowed.
  requests  {quantity} #2 : Requests describes the minimum amount of compute resources required.
  claims    [ResourceClaim] keys=name #3 : Claims lists the names of resources that are used by this container.

ContainerResizePolicy = io.k8s.api.core.v1; resourceName string! required #1; restartPolicy string! required #2
ContainerRestartRule = io.k8s.api.core.v1; action string required #1; exitCodes *ContainerRestartRuleOnExitCodes #2
Probe = io.k8s.api.core.v1
  exec *ExecAction #1.1; httpGet *HTTPGetAction #1.2; tcpSocket *TCPSocketAction #1.3; grpc *GRPCAction #1.4; initialDelaySeconds int32 #2
  timeoutSeconds int32 #3; periodSeconds int32 #4; successThreshold int32 #5; failureThreshold int32 #6; terminationGracePeriodSeconds *int64 #7
Lifecycle = io.k8s.api.core.v1; postStart *LifecycleHandler #1; preStop *LifecycleHandler #2; stopSignal *string #3
SecurityContext = io.k8s.api.core.v1
  capabilities *Capabilities #1; privileged *bool #2; seLinuxOptions *SELinuxOptions #3; windowsOptions *WindowsSecurityContextOptions #10
  runAsUser *int64 #4; runAsGroup *int64 #8; runAsNonRoot *bool #5; readOnlyRootFilesystem *bool #6; allowPrivilegeEscalation *bool #7
  procMount *string #9; seccompProfile *SeccompProfile #11; appArmorProfile *AppArmorProfile #12
ConfigMapEnvSource = io.k8s.api.core.v1; name string #1.1; optional *bool #2
SecretEnvSource = io.k8s.api.core.v1; name string #1.1; optional *bool #2
EnvVarSource = io.k8s.api.core.v1
  fieldRef *ObjectFieldSelector #1; resourceFieldRef *ResourceFieldSelector #2; configMapKeyRef *ConfigMapKeySelector #3
  secretKeyRef *SecretKeySelector #4; fileKeyRef *FileKeySelector #5
ResourceClaim = io.k8s.api.core.v1; name string! required #1; request string #2
ContainerRestartRuleOnExitCodes = io.k8s.api.core.v1; operator string required #1; values [int32] set #2
ExecAction = io.k8s.api.core.v1; command [string] #1
HTTPGetAction = io.k8s.api.core.v1; path string #1; port int-or-string required #2; host string #3; scheme string #4; httpHeaders [HTTPHeader] #5
TCPSocketAction = io.k8s.api.core.v1; port int-or-string required #1; host string #2
GRPCAction = io.k8s.api.core.v1; port int32! required #1; service *string! #2
LifecycleHandler = io.k8s.api.core.v1; exec *ExecAction #1; httpGet *HTTPGetAction #2; tcpSocket *TCPSocketAction #3; sleep *SleepAction #4
Capabilities = io.k8s.api.core.v1; add [string] #1; drop [string] #2
SELinuxOptions = io.k8s.api.core.v1; user string #1; role string #2; type string #3; level string #4
WindowsSecurityContextOptions = io.k8s.api.core.v1
  gmsaCredentialSpecName *string #1; gmsaCredentialSpec *string #2; runAsUserName *string #3; hostProcess *bool #4
SeccompProfile = io.k8s.api.core.v1; type string! required #1; localhostProfile *string #2
AppArmorProfile = io.k8s.api.core.v1; type string! required #1; localhostProfile *string #2
ConfigMapKeySelector = io.k8s.api.core.v1 atomic; name string #1.1; key string! required #2; optional *bool #3
SecretKeySelector = io.k8s.api.core.v1 atomic; name string #1.1; key string! required #2; optional *bool #3
FileKeySelector = io.k8s.api.core.v1 atomic; volumeName string! required #1; path string! required #2; key string! required #3; optional *bool #4
HTTPHeader = io.k8s.api.core.v1; name string! required #1; value string! required #2
SleepAction = io.k8s.api.core.v1; seconds int64! required #1

Volume = io.k8s.api.core.v1
  name string! required #1; hostPath *HostPathVolumeSource #2.1; emptyDir *EmptyDirVolumeSource #2.2
  gcePersistentDisk *GCEPersistentDiskVolumeSource #2.3; awsElasticBlockStore *AWSElasticBlockStoreVolumeSource #2.4
  gitRepo *GitRepoVolumeSource #2.5; secret *SecretVolumeSource #2.6; nfs *NFSVolumeSource #2.7; iscsi *ISCSIVolumeSource #2.8
  glusterfs *GlusterfsVolumeSource #2.9; persistentVolumeClaim *PersistentVolumeClaimVolumeSource #2.10; rbd *RBDVolumeSource #2.11
  flexVolume *FlexVolumeSource #2.12; cinder *CinderVolumeSource #2.13; cephfs *CephFSVolumeSource #2.14; flocker *FlockerVolumeSource #2.15
  downwardAPI *DownwardAPIVolumeSource #2.16; fc *FCVolumeSource #2.17; azureFile *AzureFileVolumeSource #2.18; configMap *ConfigMapVolumeSource #2.19
  vsphereVolume *VsphereVirtualDiskVolumeSource #2.20; quobyte *QuobyteVolumeSource #2.21; azureDisk *AzureDiskVolumeSource #2.22
  photonPersistentDisk *PhotonPersistentDiskVolumeSource #2.23; projected *ProjectedVolumeSource #2.26; portworxVolume *PortworxVolumeSource #2.24
  scaleIO *ScaleIOVolumeSource #2.25; storageos *StorageOSVolumeSource #2.27; csi *CSIVolumeSource #2.28; ephemeral *EphemeralVolumeSource #2.29
  image *ImageVolumeSource #2.30
VolumeMount = io.k8s.api.core.v1
  name string! required #1; readOnly bool #2; recursiveReadOnly *string #7; mountPath string! required #3; subPath string #4
  mountPropagation *string #5; subPathExpr string #6
VolumeDevice = io.k8s.api.core.v1; name string! required #1; devicePath string! required #2
HostPathVolumeSource = io.k8s.api.core.v1; path string! required #1; type *string #2
EmptyDirVolumeSource = io.k8s.api.core.v1; medium string #1; sizeLimit *quantity #2
GCEPersistentDiskVolumeSource = io.k8s.api.core.v1; pdName string! required #1; fsType string #2; partition int32 #3; readOnly bool #4
AWSElasticBlockStoreVolumeSource = io.k8s.api.core.v1; volumeID string! required #1; fsType string #2; partition int32 #3; readOnly bool #4
GitRepoVolumeSource = io.k8s.api.core.v1; repository string! required #1; revision string #2; directory string #3
SecretVolumeSource = io.k8s.api.core.v1; secretName string #1; items [KeyToPath] #2; defaultMode *int32 #3; optional *bool #4
NFSVolumeSource = io.k8s.api.core.v1; server string! required #1; path string! required #2; readOnly bool #3
ISCSIVolumeSource = io.k8s.api.core.v1
  targetPortal string! required #1; iqn string! required #2; lun int32! required #3; iscsiInterface string #4; fsType string #5; readOnly bool #6
  portals [string] #7; chapAuthDiscovery bool #8; chapAuthSession bool #11; secretRef *LocalObjectReference #10; initiatorName *string #12
GlusterfsVolumeSource = io.k8s.api.core.v1; endpoints string! required #1; path string! required #2; readOnly bool #3
PersistentVolumeClaimVolumeSource = io.k8s.api.core.v1; claimName string! required #1; readOnly bool #2
RBDVolumeSource = io.k8s.api.core.v1
  monitors [string]! required #1; image string! required #2; fsType string #3; pool string #4; user string #5; keyring string #6
  secretRef *LocalObjectReference #7; readOnly bool #8
FlexVolumeSource = io.k8s.api.core.v1
  driver string! required #1; fsType string #2; secretRef *LocalObjectReference #3; readOnly bool #4; options {string} #5
CinderVolumeSource = io.k8s.api.core.v1; volumeID string! required #1; fsType string #2; readOnly bool #3; secretRef *LocalObjectReference #4
CephFSVolumeSource = io.k8s.api.core.v1
  monitors [string]! required #1; path string #2; user string #3; secretFile string #4; secretRef *LocalObjectReference #5; readOnly bool #6
FlockerVolumeSource = io.k8s.api.core.v1; datasetName string #1; datasetUUID string #2
DownwardAPIVolumeSource = io.k8s.api.core.v1; items [DownwardAPIVolumeFile] #1; defaultMode *int32 #2
FCVolumeSource = io.k8s.api.core.v1; targetWWNs [string] #1; lun *int32 #2; fsType string #3; readOnly bool #4; wwids [string] #5
AzureFileVolumeSource = io.k8s.api.core.v1; secretName string! required #1; shareName string! required #2; readOnly bool #3
ConfigMapVolumeSource = io.k8s.api.core.v1; name string #1.1; items [KeyToPath] #2; defaultMode *int32 #3; optional *bool #4
VsphereVirtualDiskVolumeSource = io.k8s.api.core.v1
  volumePath string! required #1; fsType string #2; storagePolicyName string #3; storagePolicyID string #4
QuobyteVolumeSource = io.k8s.api.core.v1
  registry string! required #1; volume string! required #2; readOnly bool #3; user string #4; group string #5; tenant string #6
AzureDiskVolumeSource = io.k8s.api.core.v1
  diskName string! required #1; diskURI string! required #2; cachingMode *string #3; fsType *string #4; readOnly *bool #5; kind *string #6
PhotonPersistentDiskVolumeSource = io.k8s.api.core.v1; pdID string! required #1; fsType string #2
ProjectedVolumeSource = io.k8s.api.core.v1; sources [VolumeProjection]! #1; defaultMode *int32 #2
PortworxVolumeSource = io.k8s.api.core.v1; volumeID string! required #1; fsType string #2; readOnly bool #3
ScaleIOVolumeSource = io.k8s.api.core.v1
  gateway string! required #1; system string! required #2; secretRef *LocalObjectReference! required #3; sslEnabled bool #4
  protectionDomain string #5; storagePool string #6; storageMode string #7; volumeName string #8; fsType string #9; readOnly bool #10
StorageOSVolumeSource = io.k8s.api.core.v1
  volumeName string #1; volumeNamespace string #2; fsType string #3; readOnly bool #4; secretRef *LocalObjectReference #5
CSIVolumeSource = io.k8s.api.core.v1
  driver string! required #1; readOnly *bool #2; fsType *string #3; volumeAttributes {string} #4; nodePublishSecretRef *LocalObjectReference #5
EphemeralVolumeSource = io.k8s.api.core.v1; volumeClaimTemplate *PersistentVolumeClaimTemplate #1
ImageVolumeSource = io.k8s.api.core.v1; reference string #1; pullPolicy string #2
KeyToPath = io.k8s.api.core.v1; key string! required #1; path string! required #2; mode *int32 #3
LocalObjectReference = io.k8s.api.core.v1 atomic; name string #1
DownwardAPIVolumeFile = io.k8s.api.core.v1
  path string! required #1; fieldRef *ObjectFieldSelector #2; resourceFieldRef *ResourceFieldSelector #3; mode *int32 #4
VolumeProjection = io.k8s.api.core.v1
  secret *SecretProjection #1; downwardAPI *DownwardAPIProjection #2; configMap *ConfigMapProjection #3
  serviceAccountToken *ServiceAccountTokenProjection #4; clusterTrustBundle *ClusterTrustBundleProjection #5
  podCertificate *PodCertificateProjection #6
PersistentVolumeClaimTemplate = io.k8s.api.core.v1; metadata ObjectMeta #1; spec PersistentVolumeClaimSpec required #2
ObjectFieldSelector = io.k8s.api.core.v1 atomic; apiVersion string #1; fieldPath string! required #2
ResourceFieldSelector = io.k8s.api.core.v1 atomic; containerName string #1; resource string! required #2; divisor quantity! #3
SecretProjection = io.k8s.api.core.v1; name string #1.1; items [KeyToPath] #2; optional *bool #4
DownwardAPIProjection = io.k8s.api.core.v1; items [DownwardAPIVolumeFile] #1
ConfigMapProjection = io.k8s.api.core.v1; name string #1.1; items [KeyToPath] #2; optional *bool #4
ServiceAccountTokenProjection = io.k8s.api.core.v1; audience string #1; expirationSeconds *int64 #2; path string! required #3
ClusterTrustBundleProjection = io.k8s.api.core.v1
  name *string #1; signerName *string #2; labelSelector *LabelSelector #3; optional *bool #5; path string! required #4
PodCertificateProjection = io.k8s.api.core.v1
  signerName string required #1; keyType string required #2; maxExpirationSeconds *int32 #3; credentialBundlePath string #4; keyPath string #5
  certificateChainPath string #6; userAnnotations {string} #7
PersistentVolumeClaimSpec = io.k8s.api.core.v1
  accessModes [string] #1; selector *LabelSelector #4; resources VolumeResourceRequirements #2; volumeName string #3; storageClassName *string #5
  volumeMode *string #6; dataSource *TypedLocalObjectReference #7; dataSourceRef *TypedObjectReference #8; volumeAttributesClassName *string #9
VolumeResourceRequirements = io.k8s.api.core.v1; limits {quantity} #1; requests {quantity} #2
TypedLocalObjectReference = io.k8s.api.core.v1 atomic; apiGroup *string! #1; kind string! required #2; name string! required #3
TypedObjectReference = io.k8s.api.core.v1; apiGroup *string! #1; kind string! required #2; name string! required #3; namespace *string #4

Affinity = io.k8s.api.core.v1; nodeAffinity *NodeAffinity #1; podAffinity *PodAffinity #2; podAntiAffinity *PodAntiAffinity #3
Toleration = io.k8s.api.core.v1; key string #1; operator string #2; value string #3; effect string #4; tolerationSeconds *int64 #5
TopologySpreadConstraint = io.k8s.api.core.v1
  maxSkew int32! required #1; topologyKey string! required #2; whenUnsatisfiable string! required #3; labelSelector *LabelSelector #4
  minDomains *int32 #5; nodeAffinityPolicy *string #6; nodeTaintsPolicy *string #7; matchLabelKeys [string] #8
NodeAffinity = io.k8s.api.core.v1
  requiredDuringSchedulingIgnoredDuringExecution *NodeSelector #1; preferredDuringSchedulingIgnoredDuringExecution [PreferredSchedulingTerm] #2
PodAffinity = io.k8s.api.core.v1
  requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm] #1; preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm] #2
PodAntiAffinity = io.k8s.api.core.v1
  requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm] #1; preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm] #2
NodeSelector = io.k8s.api.core.v1 atomic; nodeSelectorTerms [NodeSelectorTerm]! required #1
PreferredSchedulingTerm = io.k8s.api.core.v1; weight int32! required #1; preference NodeSelectorTerm required #2
PodAffinityTerm = io.k8s.api.core.v1
  labelSelector *LabelSelector #1; namespaces [string] #2; topologyKey string! required #3; namespaceSelector *LabelSelector #4
  matchLabelKeys [string] #5; mismatchLabelKeys [string] #6
WeightedPodAffinityTerm = io.k8s.api.core.v1; weight int32! required #1; podAffinityTerm PodAffinityTerm required #2
NodeSelectorTerm = io.k8s.api.core.v1 atomic; matchExpressions [NodeSelectorRequirement] #1; matchFields [NodeSelectorRequirement] #2
NodeSelectorRequirement = io.k8s.api.core.v1; key string! required #1; operator string! required #2; values [string] #3

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
  name string! required #1; state ContainerState #2; lastState ContainerState #3; ready bool! required #4; restartCount int32! required #5
  image string! required #6; imageID string! required #7; containerID string #8; started *bool #9; allocatedResources {quantity} #10
  resources *ResourceRequirements #11; volumeMounts [VolumeMountStatus] keys=mountPath merge=mountPath #12; user *ContainerUser #13
  allocatedResourcesStatus [ResourceStatus] keys=name merge=name #14; stopSignal *string #15
PodResourceClaimStatus = io.k8s.api.core.v1; name string! required #1; resourceClaimName *string #2
PodExtendedResourceClaimStatus = io.k8s.api.core.v1
  requestMappings [ContainerExtendedResourceRequest]! required #1; resourceClaimName string! required #2
NodeAllocatableResourceClaimStatus = io.k8s.api.core.v1
  resourceClaimName string! required #1; containers [string] set #2; resources {quantity}! required #3
ContainerState = io.k8s.api.core.v1; waiting *ContainerStateWaiting #1; running *ContainerStateRunning #2; terminated *ContainerStateTerminated #3
VolumeMountStatus = io.k8s.api.core.v1
  name string! required #1; mountPath string! required #2; readOnly bool #3; recursiveReadOnly *string #4; volumeStatus *VolumeStatus #5
ContainerUser = io.k8s.api.core.v1; linux *LinuxContainerUser #1
ResourceStatus = io.k8s.api.core.v1; name string! required #1; resources [ResourceHealth] keys=resourceID #2
ContainerExtendedResourceRequest = io.k8s.api.core.v1
  containerName string! required #1; resourceName string! required #2; requestName string! required #3
ContainerStateWaiting = io.k8s.api.core.v1; reason string #1; message string #2
ContainerStateRunning = io.k8s.api.core.v1; startedAt time! #1
ContainerStateTerminated = io.k8s.api.core.v1
  exitCode int32! required #1; signal int32 #2; reason string #3; message string #4; startedAt time! #5; finishedAt time! #6; containerID string #7
VolumeStatus = io.k8s.api.core.v1; image *ImageVolumeStatus #1
LinuxContainerUser = io.k8s.api.core.v1; uid int64! required #1; gid int64! required #2; supplementalGroups [int64] #3
ResourceHealth = io.k8s.api.core.v1; resourceID string! required #1; health string #2; message *string #6
ImageVolumeStatus = io.k8s.api.core.v1; imageRef string required #1
""")
