"""Namespace (core/v1): active until it is deleted, and removed when its objects are deleted."""

from collections.abc import Iterator
from typing import Final

from nodeagent.kinds.description.documents import Document, Json, copy
from nodeagent.kinds.description.formats import dns_label
from nodeagent.kinds.description.life import KindLife
from nodeagent.kinds.description.object_rules import finalizers
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import VERBS, Resource, Subresource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError

SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")

SHAPES = read_shapes(r"""
NamespaceSpec = io.k8s.api.core.v1 : NamespaceSpec describes the attributes on a Namespace.
  finalizers  [string] #1 : Finalizers is an opaque list of values that must be empty to permanently remove object from storage.

NamespaceCondition = io.k8s.api.core.v1 : NamespaceCondition contains details about state of namespace.
  type                string! required #1 : Type of namespace controller condition.
  status              string! required #2 : Status of the condition, one of True, False, Unknown.
  lastTransitionTime  time #4 : Last time the condition transitioned from one status to another.
  reason              string #5 : Unique, one-word, CamelCase reason for the condition's last transition.
  message             string #6 : Human-readable message indicating details about last transition.

NamespaceStatus = io.k8s.api.core.v1 : NamespaceStatus is information about the current status of a Namespace.
  phase       string #1 : Phase is the current lifecycle phase of the namespace.
  conditions  [NamespaceCondition] keys=type merge=type #2 : Represents the latest available observations of a namespace's current state.

Namespace = io.k8s.api.core.v1 : Namespace provides a scope for Names. Use of multiple namespaces is optional.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      NamespaceSpec #2 : Spec defines the behavior of the Namespace.
  status    NamespaceStatus #3 : Status describes the current status of a Namespace.
""")


def default_namespace(namespace: Document) -> None:
    """Sets the label with the namespace's name (SetDefaults_Namespace)."""
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/metadata.name", name)


def validate_namespace(namespace: Document) -> Iterator[FieldError]:
    """Yields errors: finalizers of the spec follow the same rules as those of metadata."""
    yield from finalizers(namespace["spec"].get("finalizers") or [], "spec.finalizers")


def _take_finalizers(document: Document, sent: Document) -> None:
    document["spec"]["finalizers"] = sent["spec"].get("finalizers") or []


FINALIZE: Final = Subresource("finalize", ("update",), take=_take_finalizers)


class NamespaceLife(KindLife):
    """A namespace is held by the finalizer `kubernetes` until its objects are deleted."""

    def __init__(self) -> None:
        super().__init__(has_status=True)

    def prepare_create(self, document: Document) -> None:
        """Sets the phase Active and the finalizer."""
        document["status"] = {"phase": "Active"}
        given = document["spec"].get("finalizers") or []
        document["spec"]["finalizers"] = given if "kubernetes" in given else [*given, "kubernetes"]

    def prepare_update(self, document: Document, old: Document) -> None:
        """Keeps the finalizers of the spec, which change only through the subresource `finalize`."""
        super().prepare_update(document, old)
        document["spec"]["finalizers"] = copy(old["spec"].get("finalizers"))

    def is_held(self, document: Document) -> bool:
        """Returns whether a finalizer is left, in metadata or in the spec."""
        return super().is_held(document) or bool(document["spec"].get("finalizers"))

    def mark(self, document: Document, grace_seconds: int) -> None:  # noqa: ARG002 - a namespace has no grace period
        """Sets the phase Terminating."""
        document["status"]["phase"] = "Terminating"


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    return [name, document["status"].get("phase", ""), old]


PRINTER = Printer((Column("Status", description="The status of the namespace"), AGE), _cells)


ROWS = (
    Resource(
        plural="namespaces",
        singular="namespace",
        kind="Namespace",
        struct=SHAPES["Namespace"],
        short_names=("ns",),
        printer=PRINTER,
        namespaced=False,
        has_status=True,
        name_check=dns_label,
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
        default=default_namespace,
        validate=validate_namespace,
        fields=("status.phase",),
        storage_hash="Q3oi5N2YM8M=",
        immortal=frozenset(SYSTEM_NAMESPACES),
        own_life=NamespaceLife(),
        further_subresources=(FINALIZE,),
    ),
)
