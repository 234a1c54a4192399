"""The schemas of a pod's containers."""

from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.pod import volumes

SHAPES = read_shapes(
    r"""
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
  name                      string! required #1.1
  image                     string #1.2
  command                   [string] #1.3
  args                      [string] #1.4
  workingDir                string #1.5
  ports                     [ContainerPort] keys=containerPort,protocol merge=containerPort #1.6
  envFrom                   [EnvFromSource] #1.19
  env                       [EnvVar] keys=name merge=name #1.7
  resources                 ResourceRequirements #1.8
  resizePolicy              [ContainerResizePolicy] #1.23
  restartPolicy             *string #1.24
  restartPolicyRules        [ContainerRestartRule] #1.25
  volumeMounts              [VolumeMount] keys=mountPath merge=mountPath #1.9
  volumeDevices             [VolumeDevice] keys=devicePath merge=devicePath #1.21
  livenessProbe             *Probe #1.10
  readinessProbe            *Probe #1.11
  startupProbe              *Probe #1.22
  lifecycle                 *Lifecycle #1.12
  terminationMessagePath    string #1.13
  terminationMessagePolicy  string #1.20
  imagePullPolicy           string #1.14
  securityContext           *SecurityContext #1.15
  stdin                     bool #1.16
  stdinOnce                 bool #1.17
  tty                       bool #1.18
  targetContainerName       string #2

ContainerPort = io.k8s.api.core.v1 : ContainerPort represents a network port in a single container.
  name           string #1 : If specified, this must be an IANA_SVC_NAME and unique within the pod.
  hostPort       int32 #2 : Number of port to expose on the host.
  containerPort  int32! required #3 : Number of port to expose on the pod's IP address.
  protocol       string default=TCP #4 : Protocol for port. Must be UDP, TCP, or SCTP. Defaults to "TCP".
  hostIP         string #5 : What host IP to bind the external port to.

EnvFromSource = io.k8s.api.core.v1
  prefix        string #1
  configMapRef  *ConfigMapEnvSource #2
  secretRef     *SecretEnvSource #3

EnvVar = io.k8s.api.core.v1 : EnvVar represents an environment variable present in a Container.
  name       string! required #1 : Name of the environment variable.
  value      string #2 : Variable value.
  valueFrom  *EnvVarSource #3 : Source for the environment variable's value.

ResourceRequirements = io.k8s.api.core.v1 : ResourceRequirements describes the compute resource requirements.
  limits    {quantity} #1 : Limits describes the maximum amount of compute resources allowed.
  requests  {quantity} #2 : Requests describes the minimum amount of compute resources required.
  claims    [ResourceClaim] keys=name #3 : Claims lists the names of resources that are used by this container.

ContainerResizePolicy = io.k8s.api.core.v1
  resourceName   string! required #1
  restartPolicy  string! required #2

ContainerRestartRule = io.k8s.api.core.v1
  action     string required #1
  exitCodes  *ContainerRestartRuleOnExitCodes #2

Probe = io.k8s.api.core.v1
  exec                           *ExecAction #1.1
  httpGet                        *HTTPGetAction #1.2
  tcpSocket                      *TCPSocketAction #1.3
  grpc                           *GRPCAction #1.4
  initialDelaySeconds            int32 #2
  timeoutSeconds                 int32 #3
  periodSeconds                  int32 #4
  successThreshold               int32 #5
  failureThreshold               int32 #6
  terminationGracePeriodSeconds  *int64 #7

Lifecycle = io.k8s.api.core.v1
  postStart   *LifecycleHandler #1
  preStop     *LifecycleHandler #2
  stopSignal  *string #3

SecurityContext = io.k8s.api.core.v1
  capabilities              *Capabilities #1
  privileged                *bool #2
  seLinuxOptions            *SELinuxOptions #3
  windowsOptions            *WindowsSecurityContextOptions #10
  runAsUser                 *int64 #4
  runAsGroup                *int64 #8
  runAsNonRoot              *bool #5
  readOnlyRootFilesystem    *bool #6
  allowPrivilegeEscalation  *bool #7
  procMount                 *string #9
  seccompProfile            *SeccompProfile #11
  appArmorProfile           *AppArmorProfile #12

ConfigMapEnvSource = io.k8s.api.core.v1
  name      string #1.1
  optional  *bool #2

SecretEnvSource = io.k8s.api.core.v1
  name      string #1.1
  optional  *bool #2

EnvVarSource = io.k8s.api.core.v1
  fieldRef          *ObjectFieldSelector #1
  resourceFieldRef  *ResourceFieldSelector #2
  configMapKeyRef   *ConfigMapKeySelector #3
  secretKeyRef      *SecretKeySelector #4
  fileKeyRef        *FileKeySelector #5

ResourceClaim = io.k8s.api.core.v1
  name     string! required #1
  request  string #2

ContainerRestartRuleOnExitCodes = io.k8s.api.core.v1
  operator  string required #1
  values    [int32] set #2

ExecAction = io.k8s.api.core.v1
  command  [string] #1

HTTPGetAction = io.k8s.api.core.v1
  path         string #1
  port         int-or-string required #2
  host         string #3
  scheme       string #4
  httpHeaders  [HTTPHeader] #5

TCPSocketAction = io.k8s.api.core.v1
  port  int-or-string required #1
  host  string #2

GRPCAction = io.k8s.api.core.v1
  port     int32! required #1
  service  *string! #2

LifecycleHandler = io.k8s.api.core.v1
  exec       *ExecAction #1
  httpGet    *HTTPGetAction #2
  tcpSocket  *TCPSocketAction #3
  sleep      *SleepAction #4

Capabilities = io.k8s.api.core.v1
  add   [string] #1
  drop  [string] #2

SELinuxOptions = io.k8s.api.core.v1
  user   string #1
  role   string #2
  type   string #3
  level  string #4

WindowsSecurityContextOptions = io.k8s.api.core.v1
  gmsaCredentialSpecName  *string #1
  gmsaCredentialSpec      *string #2
  runAsUserName           *string #3
  hostProcess             *bool #4

SeccompProfile = io.k8s.api.core.v1
  type              string! required #1
  localhostProfile  *string #2

AppArmorProfile = io.k8s.api.core.v1
  type              string! required #1
  localhostProfile  *string #2

ConfigMapKeySelector = io.k8s.api.core.v1 atomic
  name      string #1.1
  key       string! required #2
  optional  *bool #3

SecretKeySelector = io.k8s.api.core.v1 atomic
  name      string #1.1
  key       string! required #2
  optional  *bool #3

FileKeySelector = io.k8s.api.core.v1 atomic
  volumeName  string! required #1
  path        string! required #2
  key         string! required #3
  optional    *bool #4

HTTPHeader = io.k8s.api.core.v1
  name   string! required #1
  value  string! required #2

SleepAction = io.k8s.api.core.v1
  seconds  int64! required #1
""",
    volumes.SHAPES,
)
