"""PodTemplate (core/v1), and the pod template in kinds that create pods. Nothing here creates pods."""

from collections.abc import Iterator

from nodeagent.kinds import pod
from nodeagent.kinds.description import object_rules
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age, pairs
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError

SHAPES = read_shapes(
    r"""
PodTemplateSpec = io.k8s.api.core.v1 : PodTemplateSpec describes the data a pod should have when created from a template.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      PodSpec #2 : Specification of the desired behavior of the pod.

PodTemplate = io.k8s.api.core.v1 : PodTemplate describes a template for creating copies of a predefined pod.
  metadata  ObjectMeta #1 : Standard object's metadata.
  template  PodTemplateSpec #2 : Template defines the pods that will be created from this pod template.
""",
    pod.SHAPES,
)


def default_template(template: Document) -> None:
    """Sets the defaults of the pod spec."""
    pod.default_pod_spec(template["spec"], is_template=True)


def validate_template(template: Document, at: str) -> Iterator[FieldError]:
    """Yields the errors of labels, annotations and pod spec. `at`: the path of the template in its object."""
    meta = template["metadata"]
    yield from object_rules.labels(meta.get("labels") or {}, f"{at}.labels")
    yield from object_rules.annotations(meta.get("annotations") or {}, f"{at}.annotations")
    yield from pod.validate_pod_spec(template["spec"], f"{at}.spec")


def containers_of(template: Document) -> list[Json]:
    """Returns the containers' names and images, as two columns of `kubectl get -o wide`."""
    containers = template["spec"].get("containers") or []
    return [",".join(container.get(part, "") for container in containers) for part in ("name", "image")]


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    template = document["template"]
    return [name, *containers_of(template), pairs(template["metadata"].get("labels")), old]


PRINTER = Printer(
    (
        Column("Containers", description="Names of each container in the template."),
        Column("Images", description="Images referenced by each container in the template."),
        Column("Pod Labels", description="The labels for the pod template."),
        AGE,
    ),
    _cells,
)


ROWS = (
    Resource(
        plural="podtemplates",
        singular="podtemplate",
        kind="PodTemplate",
        struct=SHAPES["PodTemplate"],
        printer=PRINTER,
        returns_deleted=True,
        default=lambda document: default_template(document["template"]),
        validate=lambda document: validate_template(document["template"], "template"),
        generation_of=("template",),
        storage_hash="LIXB2x4IFpk=",
    ),
)
