"""Answers reviews: who a client or the owner of a token is, and what a user may do. Pure."""

from collections.abc import Collection
from http import HTTPStatus
from typing import Final

from nodeagent.apiserver.api import authorization
from nodeagent.apiserver.api.account_tokens import ISSUER
from nodeagent.apiserver.api.authorization import TokenReader, User
from nodeagent.apiserver.api.review_shapes import ReviewKind
from nodeagent.kinds.description.decoding import TypeMismatch, normalise
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog
from nodeagent.kinds.description.status import ApiError, FieldError, bad_request, invalid, object_invalid

_ANY: Final = "*"


class Reviews:
    """Answers reviews with the catalog and tokens of one server."""

    def __init__(self, catalog: Catalog, tokens: TokenReader) -> None:
        self._catalog = catalog
        self._tokens = tokens

    def answer(self, review: ReviewKind, sent: Document, user: User, namespace: str) -> Document:
        """Returns the document that was sent, with a status. Raises ApiError 400, 422."""
        try:
            asked = normalise(review.sent.struct, sent)
        except TypeMismatch as mismatch:
            raise bad_request(f"{review.kind} cannot be handled as a {review.kind}: {mismatch}") from None
        head: Document = {"kind": review.kind, "apiVersion": review.sent.group_version, **asked}
        match review.kind:
            case "SelfSubjectReview":
                return {**head, "status": {"userInfo": _user_info(user)}}
            case "TokenReview":
                return {**head, "status": self._token_status(asked["spec"])}
            case "SelfSubjectAccessReview":
                return {**head, "status": self._access_status(review, asked["spec"], user)}
        spec = asked["spec"]
        _check(review, spec, namespace)
        groups = spec.get("groups") or []
        return {
            **head,
            "status": self._access_status(review, spec, authorization.user_of(spec.get("user", ""), groups)),
        }

    def _token_status(self, spec: Document) -> Document:
        token, wanted = spec.get("token", ""), spec.get("audiences") or [ISSUER]
        user = self._tokens.user(token) if token and token.isascii() else None
        audiences = [audience for audience in wanted if audience == ISSUER]
        if user is None or not audiences:
            return {"user": {}, "error": "the token is not valid, or not for these audiences"}
        return {"authenticated": True, "user": _user_info(user), "audiences": audiences}

    def _access_status(self, review: ReviewKind, spec: Document, user: User) -> Document:
        what, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (what is None) == (path is None):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise object_invalid(review.kind, "", [invalid("spec.resourceAttributes", what, why)], review.group)
        try:
            if what is not None:
                self._authorize(user, what)
            elif path is not None:
                authorization.authorize(user, path.get("verb", ""), path.get("path", ""), "")
        except ApiError as error:
            if error.code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise
            return {"allowed": False, "reason": error.message}
        return {"allowed": True}

    def _authorize(self, user: User, what: Document) -> None:
        group, resource, name = what.get("group", ""), what.get("resource", ""), what.get("name", "")
        authorization.authorize(
            user,
            what.get("verb", ""),
            f"/{resource}",
            resource or _ANY,
            what.get("namespace", ""),
            name,
            group,
            subresource=what.get("subresource", ""),
            confidential=self._is_confidential(group, resource),
        )

    def _is_confidential(self, group: str, resource: str) -> bool:
        """Returns whether one of the resources that the group and resource match is confidential."""
        return any(
            row.confidential and resource in ("", _ANY, row.plural) and group in (_ANY, row.group)
            for row in self._catalog.rows
        )


def _check(review: ReviewKind, spec: Document, namespace: str) -> None:
    errors: list[FieldError] = []
    if not spec.get("user") and not spec.get("groups"):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    attributes = spec.get("resourceAttributes") or {}
    if review.namespaced and attributes.get("namespace", "") != namespace:
        why = f"must match the namespace of the request ({namespace})"
        errors.append(invalid("spec.resourceAttributes.namespace", attributes.get("namespace", ""), why))
    if errors:
        raise object_invalid(review.kind, "", errors, review.group)


def _user_info(user: User) -> Document:
    info: Document = {"username": user.name}
    groups: Collection[str] = user.groups
    return info | {
        name: value
        for name, value in (
            ("uid", user.uid),
            ("groups", list(groups)),
            ("extra", {key: list(values) for key, values in user.extra}),
        )
        if value
    }
