"""Schemas that several kinds use: metadata and conditions (meta/v1), references (core/v1); and those of responses."""

from collections.abc import Mapping
from typing import Final

from nodeagent.kinds.description.notation import read
from nodeagent.kinds.description.shapes import Struct

_SHARED = read(
    r"""
OwnerReference = io.k8s.apimachinery.pkg.apis.meta.v1 atomic : OwnerReference contains enough information to let you identify an owning object.
  apiVersion          string! required #5 : API version of the referent.
  kind                string! required #1 : Kind of the referent.
  name                string! required #3 : Name of the referent.
  uid                 string! required #4 : UID of the referent.
  controller          *bool #6 : If true, this reference points to the managing controller.
  blockOwnerDeletion  *bool #7 : If true, the owner cannot be deleted in the foreground until this reference is removed.

ManagedFieldsEntry = io.k8s.apimachinery.pkg.apis.meta.v1 : ManagedFieldsEntry is a set of fields owned by one manager.
  manager      string #1 : Manager is an identifier of the workflow managing these fields.
  operation    string #2 : Operation is the type of operation which lead to this entry: Apply or Update.
  apiVersion   string #3 : APIVersion defines the version of this resource that this field set applies to.
  time         *time #4 : Time is the timestamp of when the entry was added or changed.
  fieldsType   string #6 : FieldsType is the discriminator for the fields format: FieldsV1.
  fieldsV1     *any #7 : FieldsV1 holds the first JSON version format.
  subresource  string #8 : Subresource is the name of the subresource used to update that object.

ObjectMeta = io.k8s.apimachinery.pkg.apis.meta.v1 : ObjectMeta is metadata that all persisted resources must have.
  name                        string #1 : Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names
  generateName                string #2 : GenerateName is an optional prefix, used by the server, to generate a unique name ONLY IF the Name field has not been provided.
  namespace                   string #3 : Namespace defines the space within which each name must be unique.
  selfLink                    string #4 : Deprecated: selfLink is a legacy read-only field that is no longer populated by the system.
  uid                         string #5 : UID is the unique in time and space value for this object.
  resourceVersion             string #6 : An opaque value that represents the internal version of this object.
  generation                  int64 #7 : A sequence number representing a specific generation of the desired state.
  creationTimestamp           time #8 : CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
  deletionTimestamp           *time #9 : DeletionTimestamp is RFC 3339 date and time at which this resource will be deleted.
  deletionGracePeriodSeconds  *int64 #10 : Number of seconds allowed for this object to gracefully terminate before it will be removed from the system.
  labels                      {string} #11 : Map of string keys and values that can be used to organize and categorize (scope and select) objects.
  annotations                 {string} #12 : Annotations is an unstructured key value map stored with a resource that may be set by external tools.
  ownerReferences             [OwnerReference] keys=uid merge=uid #13 : List of objects depended by this object.
  finalizers                  [string] set merge= #14 : Must be empty before the object is deleted from the registry.
  managedFields               [ManagedFieldsEntry] #17 : ManagedFields maps workflow-id and version to the set of fields that are managed by that workflow.

Condition = io.k8s.apimachinery.pkg.apis.meta.v1 : Condition contains details for one aspect of the current state of this API Resource.
  type                string! required #1 : type of condition in CamelCase.
  status              string! required #2 : status of the condition, one of True, False, Unknown.
  observedGeneration  int64 #3 : observedGeneration represents the .metadata.generation that the condition was set based upon.
  lastTransitionTime  time! required #4 : lastTransitionTime is the last time the condition transitioned from one status to another.
  reason              string! required #5 : reason contains a programmatic identifier indicating the reason for the last transition.
  message             string! required #6 : message is a human readable message indicating details about the transition.

ListMeta = io.k8s.apimachinery.pkg.apis.meta.v1 : ListMeta describes metadata that lists have.
  selfLink            string #1 : Deprecated: selfLink is a legacy read-only field that is no longer populated by the system.
  resourceVersion     string #2 : The version of the list, from which a watch can start.
  continue            string #3 : The token of the next page, if there is one.
  remainingItemCount  *int64 #4 : How many objects are left for further pages, if known.

StatusCause = io.k8s.apimachinery.pkg.apis.meta.v1 : StatusCause describes one cause of an error.
  reason   string #1 : A word for the cause.
  message  string #2 : The cause for people.
  field    string #3 : The field with the error.

StatusDetails = io.k8s.apimachinery.pkg.apis.meta.v1 : StatusDetails names the object of a Status.
  name               string #1 : The object's name.
  group              string #2 : The group of its resource.
  kind               string #3 : Its resource.
  uid                string #6 : Its identity.
  causes             [StatusCause] #4 : The causes of the error.
  retryAfterSeconds  int32 #5 : Seconds after which to retry.

Status = io.k8s.apimachinery.pkg.apis.meta.v1 : Status is the response to a request whose result is not an object.
  metadata  ListMeta #1 : Metadata of lists; empty.
  status    string #2 : Success or Failure.
  message   string #3 : The outcome for people.
  reason    string #4 : A word for the outcome.
  details   *StatusDetails #5 : What it is about.
  code      int32 #6 : The HTTP status.

PartialObjectMetadata = io.k8s.apimachinery.pkg.apis.meta.v1 : PartialObjectMetadata is the metadata of any object.
  metadata  ObjectMeta #1 : Standard object's metadata.

Preconditions = io.k8s.apimachinery.pkg.apis.meta.v1; uid *string #1; resourceVersion *string #2
DeleteOptions = io.k8s.apimachinery.pkg.apis.meta.v1
  gracePeriodSeconds *int64 #1; preconditions *Preconditions #2; propagationPolicy *string #4; dryRun [string] #5
LabelSelector = io.k8s.apimachinery.pkg.apis.meta.v1 atomic; matchLabels {string} #1; matchExpressions [LabelSelectorRequirement] #2
LabelSelectorRequirement = io.k8s.apimachinery.pkg.apis.meta.v1; key string! required #1; operator string! required #2; values [string] #3

ObjectReference = io.k8s.api.core.v1 atomic : ObjectReference contains enough information to let you inspect or modify the referred object.
  kind             string #1 : Kind of the referent.
  namespace        string #2 : Namespace of the referent.
  name             string #3 : Name of the referent.
  uid              string #4 : UID of the referent.
  apiVersion       string #5 : API version of the referent.
  resourceVersion  string #6 : Specific resourceVersion to which this reference is made, if any.
  fieldPath        string #7 : A part of the object, if this refers to one.
""",
    {},
)


LIST_META: Final = _SHARED["ListMeta"]
DELETE_OPTIONS: Final = _SHARED["DeleteOptions"]
"""The fields that the API server supports."""
ANSWERS: Final = {name: _SHARED[name] for name in ("Status", "PartialObjectMetadata")}
"""Kinds of responses besides objects of the resource."""


def read_shapes(text: str, known: Mapping[str, Struct] = _SHARED) -> Mapping[str, Struct]:
    """Returns the structs of `text` and of `known`, by name; `text` may refer to these. Raises ValueError as `read` does."""
    return read(text, known)
