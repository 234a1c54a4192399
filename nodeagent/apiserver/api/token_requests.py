"""serviceaccounts/NAME/token: an administrator requests a token of an account (TokenRequest)."""

from typing import Final

from nodeagent.apiserver.api.account_tokens import ISSUER, Account, AccountTokens
from nodeagent.apiserver.api.bodies import UnstoredKind, parse_object
from nodeagent.apiserver.api.replies import Reply, document_reply
from nodeagent.apiserver.storage.records import Record
from nodeagent.kinds.description.decoding import TypeMismatch, normalise
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.description.status import FieldError, bad_request, conflict, forbidden, invalid, object_invalid
from nodeagent.kinds.serviceaccount import TOKEN, TOKEN_REQUEST

_DEFAULT_SECONDS: Final = 3600
_SHORTEST_SECONDS: Final = 600
_LONGEST_SECONDS: Final = 1 << 32


def answer_token_request(record: Record, body: bytes, media_type: str, accounts: AccountTokens, *, now: float) -> Reply:
    """Returns the TokenRequest with a token for the account of `record`. Raises ApiError 400, 415, 422, and 409 if the account
    was deleted and only a finalizer holds it."""
    meta = record.document()["metadata"]
    if meta.get("deletionTimestamp"):
        raise conflict("serviceaccounts", record.name, "the account is being deleted")
    sent = UnstoredKind(TOKEN.kind, TOKEN.group, "v1", TOKEN_REQUEST)
    try:
        request = normalise(sent.struct, parse_object(body, media_type, sent))
    except TypeMismatch as mismatch:
        raise bad_request(f'{TOKEN.kind} in version "v1" cannot be handled as a {TOKEN.kind}: {mismatch}') from None
    spec: Document = request["spec"]
    errors = _errors(spec)
    if errors:
        raise object_invalid(TOKEN.kind, record.name, errors, TOKEN.group)
    audiences = spec.get("audiences") or [ISSUER]
    seconds = spec.get("expirationSeconds", _DEFAULT_SECONDS)
    account = Account(record.namespace, record.name, meta["uid"])
    token, expires = accounts.issue(account, audiences, seconds)
    answer = {
        "kind": TOKEN.kind,
        "apiVersion": sent.group_version,
        "metadata": {
            "name": record.name,
            "namespace": record.namespace,
            "creationTimestamp": rfc3339(int(now)),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
        "status": {"token": token, "expirationTimestamp": rfc3339(expires)},
    }
    return document_reply(answer, 201)


def _errors(spec: Document) -> list[FieldError]:
    errors = []
    seconds = spec.get("expirationSeconds", _DEFAULT_SECONDS)
    if seconds < _SHORTEST_SECONDS:
        errors.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    if seconds > _LONGEST_SECONDS:
        errors.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds"))
    if spec.get("boundObjectRef"):
        errors.append(forbidden("spec.boundObjectRef", "this server does not bind tokens to objects"))
    return errors
