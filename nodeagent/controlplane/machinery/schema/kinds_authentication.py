"""TokenRequest (authentication.k8s.io/v1): a question, not a stored object."""

KINDS = r"""
BoundObjectReference = io.k8s.api.authentication.v1 : BoundObjectReference is a reference to an object that a token is bound to.
  kind        string : Kind of the referent. Valid kinds are 'Pod' and 'Secret'.
  apiVersion  string : API version of the referent.
  name        string : Name of the referent.
  uid         string : UID of the referent.

TokenRequestSpec = io.k8s.api.authentication.v1 : TokenRequestSpec contains client provided parameters of a token request.
  audiences          [string]! required : Audiences are the intendend audiences of the token.
  expirationSeconds  *int64 : ExpirationSeconds is the requested duration of validity of the request.
  boundObjectRef     *BoundObjectReference : BoundObjectRef is a reference to an object that the token will be bound to.

TokenRequestStatus = io.k8s.api.authentication.v1 : TokenRequestStatus is the result of a token request.
  token                string! required : Token is the opaque bearer token.
  expirationTimestamp  time! required : ExpirationTimestamp is the time of expiration of the returned token.

TokenRequest = io.k8s.api.authentication.v1 : TokenRequest requests a token for a given service account.
  metadata  ObjectMeta : Standard object's metadata.
  spec      TokenRequestSpec required : Spec holds information about the request being evaluated.
  status    TokenRequestStatus : Status is filled in by the server and indicates whether the token can be authenticated.
"""
