"""metadata: the part every kind shares (k8s.io/apimachinery/pkg/apis/meta/v1)."""

KINDS = r"""
OwnerReference = io.k8s.apimachinery.pkg.apis.meta.v1 atomic : OwnerReference contains enough information to let you identify an owning object.
  apiVersion          string! required : API version of the referent.
  kind                string! required : Kind of the referent.
  name                string! required : Name of the referent.
  uid                 string! required : UID of the referent.
  controller          *bool : If true, this reference points to the managing controller.
  blockOwnerDeletion  *bool : If true, the owner cannot be deleted in the foreground until this reference is removed.

ManagedFieldsEntry = io.k8s.apimachinery.pkg.apis.meta.v1 : ManagedFieldsEntry is a set of fields owned by one manager.
  manager      string : Manager is an identifier of the workflow managing these fields.
  operation    string : Operation is the type of operation which lead to this entry: Apply or Update.
  apiVersion   string : APIVersion defines the version of this resource that this field set applies to.
  time         *time : Time is the timestamp of when the entry was added or changed.
  fieldsType   string : FieldsType is the discriminator for the fields format: FieldsV1.
  fieldsV1     *any : FieldsV1 holds the first JSON version format.
  subresource  string : Subresource is the name of the subresource used to update that object.

ObjectMeta = io.k8s.apimachinery.pkg.apis.meta.v1 : ObjectMeta is metadata that all persisted resources must have.
  name                        string : Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names
  generateName                string : GenerateName is an optional prefix, used by the server, to generate a unique name ONLY IF the Name field has not been provided.
  namespace                   string : Namespace defines the space within which each name must be unique.
  selfLink                    string : Deprecated: selfLink is a legacy read-only field that is no longer populated by the system.
  uid                         string : UID is the unique in time and space value for this object.
  resourceVersion             string : An opaque value that represents the internal version of this object.
  generation                  int64 : A sequence number representing a specific generation of the desired state.
  creationTimestamp           time : CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
  deletionTimestamp           *time : DeletionTimestamp is RFC 3339 date and time at which this resource will be deleted.
  deletionGracePeriodSeconds  *int64 : Number of seconds allowed for this object to gracefully terminate before it will be removed from the system.
  labels                      {string} : Map of string keys and values that can be used to organize and categorize (scope and select) objects.
  annotations                 {string} : Annotations is an unstructured key value map stored with a resource that may be set by external tools.
  ownerReferences             [OwnerReference] keys=uid merge=uid : List of objects depended by this object.
  finalizers                  [string] set merge= : Must be empty before the object is deleted from the registry.
  managedFields               [ManagedFieldsEntry] : ManagedFields maps workflow-id and version to the set of fields that are managed by that workflow.

LabelSelectorRequirement = io.k8s.apimachinery.pkg.apis.meta.v1 : A label selector requirement.
  key       string! required : key is the label key that the selector applies to.
  operator  string! required : operator represents a key's relationship to a set of values.
  values    [string] : values is an array of string values.

Condition = io.k8s.apimachinery.pkg.apis.meta.v1 : Condition contains details for one aspect of the current state of this API Resource.
  type                string! required : type of condition in CamelCase.
  status              string! required : status of the condition, one of True, False, Unknown.
  observedGeneration  int64 : observedGeneration represents the .metadata.generation that the condition was set based upon.
  lastTransitionTime  time! required : lastTransitionTime is the last time the condition transitioned from one status to another.
  reason              string! required : reason contains a programmatic identifier indicating the reason for the last transition.
  message             string! required : message is a human readable message indicating details about the transition.
"""
