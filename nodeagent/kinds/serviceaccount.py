"""ServiceAccount (core/v1), and TokenRequest (authentication.k8s.io/v1), which is sent to it and never stored."""

from typing import Final

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource, Subresource
from nodeagent.kinds.description.shared import read_shapes

SHAPES = read_shapes(r"""
LocalObjectReference = io.k8s.api.core.v1 : LocalObjectReference contains enough information to let you locate the referenced object inside the same namespace.
  name  string #1 : Name of the referent.

ServiceAccount = io.k8s.api.core.v1 : ServiceAccount binds together a name, a principal that can be authenticated and authorized, and a set of secrets.
  metadata                      ObjectMeta #1 : Standard object's metadata.
  secrets                       [ObjectReference] keys=name merge=name #2 : Deprecated: Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are allowed to use.
  imagePullSecrets              [LocalObjectReference] #3 : ImagePullSecrets is a list of references to secrets in the same namespace to use for pulling any images in pods that reference this ServiceAccount.
  automountServiceAccountToken  *bool #4 : AutomountServiceAccountToken indicates whether pods running as this service account should have an API token automatically mounted.

BoundObjectReference = io.k8s.api.authentication.v1 : BoundObjectReference is a reference to an object that a token is bound to.
  kind        string #1 : Kind of the referent. Valid kinds are 'Pod' and 'Secret'.
  apiVersion  string #2 : API version of the referent.
  name        string #3 : Name of the referent.
  uid         string #4 : UID of the referent.

TokenRequestSpec = io.k8s.api.authentication.v1 : TokenRequestSpec contains client provided parameters of a token request.
  audiences          [string]! required #1 : Audiences are the intendend audiences of the token.
  expirationSeconds  *int64 #4 : ExpirationSeconds is the requested duration of validity of the request.
  boundObjectRef     *BoundObjectReference #3 : BoundObjectRef is a reference to an object that the token will be bound to.

TokenRequestStatus = io.k8s.api.authentication.v1 : TokenRequestStatus is the result of a token request.
  token                string! required #1 : Token is the opaque bearer token.
  expirationTimestamp  time! required #2 : ExpirationTimestamp is the time of expiration of the returned token.

TokenRequest = io.k8s.api.authentication.v1 : TokenRequest requests a token for a given service account.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      TokenRequestSpec required #2 : Spec holds information about the request being evaluated.
  status    TokenRequestStatus #3 : Status is filled in by the server and indicates whether the token can be authenticated.
""")


TOKEN_REQUEST: Final = SHAPES["TokenRequest"]
TOKEN: Final = Subresource("token", ("create",), group="authentication.k8s.io", kind="TokenRequest")
"""The subresource through which an administrator requests a token."""


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    return [name, len(document.get("secrets") or []), old]


PRINTER = Printer((Column("Secrets", described_by="secrets"), AGE), _cells)


ROWS = (
    Resource(
        plural="serviceaccounts",
        singular="serviceaccount",
        returns_deleted=True,
        kind="ServiceAccount",
        struct=SHAPES["ServiceAccount"],
        short_names=("sa",),
        printer=PRINTER,
        storage_hash="pbx9ZvyFpBE=",
        further_subresources=(TOKEN,),
    ),
)
