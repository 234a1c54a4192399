"""The schemas of a pod's volumes. No volume is mounted here: they are stored and shown as sent."""

from nodeagent.kinds.description.shared import read_shapes

SHAPES = read_shapes(r"""
Volume = io.k8s.api.core.v1
  name                   string! required #1
  hostPath               *HostPathVolumeSource #2.1
  emptyDir               *EmptyDirVolumeSource #2.2
  gcePersistentDisk      *GCEPersistentDiskVolumeSource #2.3
  awsElasticBlockStore   *AWSElasticBlockStoreVolumeSource #2.4
  gitRepo                *GitRepoVolumeSource #2.5
  secret                 *SecretVolumeSource #2.6
  nfs                    *NFSVolumeSource #2.7
  iscsi                  *ISCSIVolumeSource #2.8
  glusterfs              *GlusterfsVolumeSource #2.9
  persistentVolumeClaim  *PersistentVolumeClaimVolumeSource #2.10
  rbd                    *RBDVolumeSource #2.11
  flexVolume             *FlexVolumeSource #2.12
  cinder                 *CinderVolumeSource #2.13
  cephfs                 *CephFSVolumeSource #2.14
  flocker                *FlockerVolumeSource #2.15
  downwardAPI            *DownwardAPIVolumeSource #2.16
  fc                     *FCVolumeSource #2.17
  azureFile              *AzureFileVolumeSource #2.18
  configMap              *ConfigMapVolumeSource #2.19
  vsphereVolume          *VsphereVirtualDiskVolumeSource #2.20
  quobyte                *QuobyteVolumeSource #2.21
  azureDisk              *AzureDiskVolumeSource #2.22
  photonPersistentDisk   *PhotonPersistentDiskVolumeSource #2.23
  projected              *ProjectedVolumeSource #2.26
  portworxVolume         *PortworxVolumeSource #2.24
  scaleIO                *ScaleIOVolumeSource #2.25
  storageos              *StorageOSVolumeSource #2.27
  csi                    *CSIVolumeSource #2.28
  ephemeral              *EphemeralVolumeSource #2.29
  image                  *ImageVolumeSource #2.30

VolumeMount = io.k8s.api.core.v1
  name               string! required #1
  readOnly           bool #2
  recursiveReadOnly  *string #7
  mountPath          string! required #3
  subPath            string #4
  mountPropagation   *string #5
  subPathExpr        string #6

VolumeDevice = io.k8s.api.core.v1
  name        string! required #1
  devicePath  string! required #2

HostPathVolumeSource = io.k8s.api.core.v1
  path  string! required #1
  type  *string #2

EmptyDirVolumeSource = io.k8s.api.core.v1
  medium     string #1
  sizeLimit  *quantity #2

GCEPersistentDiskVolumeSource = io.k8s.api.core.v1
  pdName     string! required #1
  fsType     string #2
  partition  int32 #3
  readOnly   bool #4

AWSElasticBlockStoreVolumeSource = io.k8s.api.core.v1
  volumeID   string! required #1
  fsType     string #2
  partition  int32 #3
  readOnly   bool #4

GitRepoVolumeSource = io.k8s.api.core.v1
  repository  string! required #1
  revision    string #2
  directory   string #3

SecretVolumeSource = io.k8s.api.core.v1
  secretName   string #1
  items        [KeyToPath] #2
  defaultMode  *int32 #3
  optional     *bool #4

NFSVolumeSource = io.k8s.api.core.v1
  server    string! required #1
  path      string! required #2
  readOnly  bool #3

ISCSIVolumeSource = io.k8s.api.core.v1
  targetPortal       string! required #1
  iqn                string! required #2
  lun                int32! required #3
  iscsiInterface     string #4
  fsType             string #5
  readOnly           bool #6
  portals            [string] #7
  chapAuthDiscovery  bool #8
  chapAuthSession    bool #11
  secretRef          *LocalObjectReference #10
  initiatorName      *string #12

GlusterfsVolumeSource = io.k8s.api.core.v1
  endpoints  string! required #1
  path       string! required #2
  readOnly   bool #3

PersistentVolumeClaimVolumeSource = io.k8s.api.core.v1
  claimName  string! required #1
  readOnly   bool #2

RBDVolumeSource = io.k8s.api.core.v1
  monitors   [string]! required #1
  image      string! required #2
  fsType     string #3
  pool       string #4
  user       string #5
  keyring    string #6
  secretRef  *LocalObjectReference #7
  readOnly   bool #8

FlexVolumeSource = io.k8s.api.core.v1
  driver     string! required #1
  fsType     string #2
  secretRef  *LocalObjectReference #3
  readOnly   bool #4
  options    {string} #5

CinderVolumeSource = io.k8s.api.core.v1
  volumeID   string! required #1
  fsType     string #2
  readOnly   bool #3
  secretRef  *LocalObjectReference #4

CephFSVolumeSource = io.k8s.api.core.v1
  monitors    [string]! required #1
  path        string #2
  user        string #3
  secretFile  string #4
  secretRef   *LocalObjectReference #5
  readOnly    bool #6

FlockerVolumeSource = io.k8s.api.core.v1
  datasetName  string #1
  datasetUUID  string #2

DownwardAPIVolumeSource = io.k8s.api.core.v1
  items        [DownwardAPIVolumeFile] #1
  defaultMode  *int32 #2

FCVolumeSource = io.k8s.api.core.v1
  targetWWNs  [string] #1
  lun         *int32 #2
  fsType      string #3
  readOnly    bool #4
  wwids       [string] #5

AzureFileVolumeSource = io.k8s.api.core.v1
  secretName  string! required #1
  shareName   string! required #2
  readOnly    bool #3

ConfigMapVolumeSource = io.k8s.api.core.v1
  name         string #1.1
  items        [KeyToPath] #2
  defaultMode  *int32 #3
  optional     *bool #4

VsphereVirtualDiskVolumeSource = io.k8s.api.core.v1
  volumePath         string! required #1
  fsType             string #2
  storagePolicyName  string #3
  storagePolicyID    string #4

QuobyteVolumeSource = io.k8s.api.core.v1
  registry  string! required #1
  volume    string! required #2
  readOnly  bool #3
  user      string #4
  group     string #5
  tenant    string #6

AzureDiskVolumeSource = io.k8s.api.core.v1
  diskName     string! required #1
  diskURI      string! required #2
  cachingMode  *string #3
  fsType       *string #4
  readOnly     *bool #5
  kind         *string #6

PhotonPersistentDiskVolumeSource = io.k8s.api.core.v1
  pdID    string! required #1
  fsType  string #2

ProjectedVolumeSource = io.k8s.api.core.v1
  sources      [VolumeProjection]! #1
  defaultMode  *int32 #2

PortworxVolumeSource = io.k8s.api.core.v1
  volumeID  string! required #1
  fsType    string #2
  readOnly  bool #3

ScaleIOVolumeSource = io.k8s.api.core.v1
  gateway           string! required #1
  system            string! required #2
  secretRef         *LocalObjectReference! required #3
  sslEnabled        bool #4
  protectionDomain  string #5
  storagePool       string #6
  storageMode       string #7
  volumeName        string #8
  fsType            string #9
  readOnly          bool #10

StorageOSVolumeSource = io.k8s.api.core.v1
  volumeName       string #1
  volumeNamespace  string #2
  fsType           string #3
  readOnly         bool #4
  secretRef        *LocalObjectReference #5

CSIVolumeSource = io.k8s.api.core.v1
  driver                string! required #1
  readOnly              *bool #2
  fsType                *string #3
  volumeAttributes      {string} #4
  nodePublishSecretRef  *LocalObjectReference #5

EphemeralVolumeSource = io.k8s.api.core.v1
  volumeClaimTemplate  *PersistentVolumeClaimTemplate #1

ImageVolumeSource = io.k8s.api.core.v1
  reference   string #1
  pullPolicy  string #2

KeyToPath = io.k8s.api.core.v1
  key   string! required #1
  path  string! required #2
  mode  *int32 #3

LocalObjectReference = io.k8s.api.core.v1 atomic
  name  string #1

DownwardAPIVolumeFile = io.k8s.api.core.v1
  path              string! required #1
  fieldRef          *ObjectFieldSelector #2
  resourceFieldRef  *ResourceFieldSelector #3
  mode              *int32 #4

VolumeProjection = io.k8s.api.core.v1
  secret               *SecretProjection #1
  downwardAPI          *DownwardAPIProjection #2
  configMap            *ConfigMapProjection #3
  serviceAccountToken  *ServiceAccountTokenProjection #4
  clusterTrustBundle   *ClusterTrustBundleProjection #5
  podCertificate       *PodCertificateProjection #6

PersistentVolumeClaimTemplate = io.k8s.api.core.v1
  metadata  ObjectMeta #1
  spec      PersistentVolumeClaimSpec required #2

ObjectFieldSelector = io.k8s.api.core.v1 atomic
  apiVersion  string #1
  fieldPath   string! required #2

ResourceFieldSelector = io.k8s.api.core.v1 atomic
  containerName  string #1
  resource       string! required #2
  divisor        quantity! #3

SecretProjection = io.k8s.api.core.v1
  name      string #1.1
  items     [KeyToPath] #2
  optional  *bool #4

DownwardAPIProjection = io.k8s.api.core.v1
  items  [DownwardAPIVolumeFile] #1

ConfigMapProjection = io.k8s.api.core.v1
  name      string #1.1
  items     [KeyToPath] #2
  optional  *bool #4

ServiceAccountTokenProjection = io.k8s.api.core.v1
  audience           string #1
  expirationSeconds  *int64 #2
  path               string! required #3

ClusterTrustBundleProjection = io.k8s.api.core.v1
  name           *string #1
  signerName     *string #2
  labelSelector  *LabelSelector #3
  optional       *bool #5
  path           string! required #4

PodCertificateProjection = io.k8s.api.core.v1
  signerName            string required #1
  keyType               string required #2
  maxExpirationSeconds  *int32 #3
  credentialBundlePath  string #4
  keyPath               string #5
  certificateChainPath  string #6
  userAnnotations       {string} #7

PersistentVolumeClaimSpec = io.k8s.api.core.v1
  accessModes                [string] #1
  selector                   *LabelSelector #4
  resources                  VolumeResourceRequirements #2
  volumeName                 string #3
  storageClassName           *string #5
  volumeMode                 *string #6
  dataSource                 *TypedLocalObjectReference #7
  dataSourceRef              *TypedObjectReference #8
  volumeAttributesClassName  *string #9

VolumeResourceRequirements = io.k8s.api.core.v1
  limits    {quantity} #1
  requests  {quantity} #2

TypedLocalObjectReference = io.k8s.api.core.v1 atomic
  apiGroup  *string! #1
  kind      string! required #2
  name      string! required #3

TypedObjectReference = io.k8s.api.core.v1
  apiGroup   *string! #1
  kind       string! required #2
  name       string! required #3
  namespace  *string #4
""")
