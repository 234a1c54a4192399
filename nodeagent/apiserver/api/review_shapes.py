"""Reviews (authentication.k8s.io, authorization.k8s.io): questions in the form of objects, answered and never stored."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nodeagent.apiserver.api.bodies import UnstoredKind
from nodeagent.apiserver.api.request_target import Target
from nodeagent.kinds.description.shared import read_shapes

AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"

SHAPES: Final = read_shapes(r"""
ResourceAttributes = io.k8s.api.authorization.v1 : ResourceAttributes describes a request for a resource.
  namespace string #1; verb string #2; group string #3; version string #4; resource string #5; subresource string #6; name string #7

NonResourceAttributes = io.k8s.api.authorization.v1 : NonResourceAttributes describes a request for a path that is no resource.
  path string #1; verb string #2

SubjectAccessReviewSpec = io.k8s.api.authorization.v1
  resourceAttributes *ResourceAttributes #1; nonResourceAttributes *NonResourceAttributes #2; user string #3; groups [string] #4; uid string #6

SubjectAccessReview = io.k8s.api.authorization.v1 : Whether a user may make a request.
  metadata ObjectMeta #1; spec SubjectAccessReviewSpec required #2

SelfSubjectAccessReviewSpec = io.k8s.api.authorization.v1; resourceAttributes *ResourceAttributes #1; nonResourceAttributes *NonResourceAttributes #2

SelfSubjectAccessReview = io.k8s.api.authorization.v1 : Whether the client may make a request.
  metadata ObjectMeta #1; spec SelfSubjectAccessReviewSpec required #2

TokenReviewSpec = io.k8s.api.authentication.v1; token string #1; audiences [string] #2

TokenReview = io.k8s.api.authentication.v1 : The user that a token belongs to.
  metadata ObjectMeta #1; spec TokenReviewSpec required #2

SelfSubjectReview = io.k8s.api.authentication.v1 : Who the client is.
  metadata ObjectMeta #1
""")


@dataclass(frozen=True, slots=True)
class ReviewKind:
    """A kind of review. `authorization.py` decides who may send one, as for all other requests."""

    group: str
    kind: str
    shape: str
    namespaced: bool = False

    @property
    def plural(self) -> str:
        """The name in paths."""
        return f"{self.kind.lower()}s"

    @property
    def sent(self) -> UnstoredKind:
        """The kind that the client sends."""
        return UnstoredKind(self.kind, self.group, "v1", SHAPES[self.shape])


REVIEWS: Final = (
    ReviewKind(AUTHENTICATION, "SelfSubjectReview", "SelfSubjectReview"),
    ReviewKind(AUTHENTICATION, "TokenReview", "TokenReview"),
    ReviewKind(AUTHORIZATION, "LocalSubjectAccessReview", "SubjectAccessReview", namespaced=True),
    ReviewKind(AUTHORIZATION, "SelfSubjectAccessReview", "SelfSubjectAccessReview"),
    ReviewKind(AUTHORIZATION, "SubjectAccessReview", "SubjectAccessReview"),
)


def reviews_of(group: str) -> Iterable[ReviewKind]:
    """Returns the kinds of review in a group."""
    return (review for review in REVIEWS if review.group == group)


def review_at(target: Target) -> ReviewKind | None:
    """Returns the kind of review that is sent to a path, or None for another path."""
    if target.version != "v1" or target.name or target.subresource:
        return None
    found = (one for one in reviews_of(target.group) if one.plural == target.plural)
    return next((one for one in found if one.namespaced == bool(target.namespace)), None)
