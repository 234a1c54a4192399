"""Deployment (apps/v1): stored, checked and shown. No pods are created from it; its creator receives a warning."""

from collections.abc import Iterator
from typing import Final

from nodeagent.kinds import podtemplate
from nodeagent.kinds.description import object_rules
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age, pairs
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, invalid, required, unsupported

SHAPES = read_shapes(
    r"""
RollingUpdateDeployment = io.k8s.api.apps.v1; maxUnavailable *int-or-string #1; maxSurge *int-or-string #2

DeploymentStrategy = io.k8s.api.apps.v1 : DeploymentStrategy describes how to replace existing pods with new ones.
  type           string #1 : Type of deployment. Can be "Recreate" or "RollingUpdate".
  rollingUpdate  *RollingUpdateDeployment #2 : Rolling update config params. Present only if the type is RollingUpdate.

DeploymentCondition = io.k8s.api.apps.v1
  type string! required #1; status string! required #2; lastUpdateTime time #6; lastTransitionTime time #7; reason string #4; message string #5

DeploymentSpec = io.k8s.api.apps.v1 : DeploymentSpec is the specification of the desired behavior of the Deployment.
  replicas                 *int32 #1 : Number of desired pods. Defaults to 1.
  selector                 *LabelSelector! required #2 : Label selector for pods. It must match the pod template's labels.
  template                 PodTemplateSpec required #3 : Template describes the pods that will be created.
  strategy                 DeploymentStrategy #4 : The deployment strategy to use to replace existing pods with new ones.
  minReadySeconds          int32 #5 : Minimum number of seconds for which a newly created pod should be ready to be considered available.
  revisionHistoryLimit     *int32 #6 : The number of old ReplicaSets to retain to allow rollback.
  paused                   bool #7 : Indicates that the deployment is paused.
  progressDeadlineSeconds  *int32 #9 : The maximum time in seconds for a deployment to make progress before it is considered to be failed.

DeploymentStatus = io.k8s.api.apps.v1 : DeploymentStatus is the most recently observed status of the Deployment.
  observedGeneration int64 #1; replicas int32 #2; updatedReplicas int32 #3; readyReplicas int32 #7; availableReplicas int32 #4
  unavailableReplicas int32 #5; terminatingReplicas *int32 #9; conditions [DeploymentCondition] keys=type merge=type #6; collisionCount *int32 #8

Deployment = io.k8s.api.apps.v1 : Deployment enables declarative updates for Pods and ReplicaSets. This server only stores it.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      DeploymentSpec #2 : Specification of the desired behavior of the Deployment.
  status    DeploymentStatus #3 : Most recently observed status of the Deployment.
""",
    podtemplate.SHAPES,
)
_NOTHING_RUNS: Final = "this server stores Deployments and makes no pods of them"
_DEFAULTS: Final = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
_ROLLING: Final = "RollingUpdate"
_STRATEGIES: Final = ("Recreate", _ROLLING)
_OPERATORS: Final = ("DoesNotExist", "Exists", "In", "NotIn")


def default_deployment(deployment: Document) -> None:
    """Sets defaults: apps/v1 SetDefaults_Deployment."""
    spec = deployment["spec"]
    for name, value in _DEFAULTS.items():
        spec.setdefault(name, value)
    strategy = spec["strategy"]
    if strategy.setdefault("type", _ROLLING) == _ROLLING:
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    podtemplate.default_template(spec["template"])


def validate_deployment(deployment: Document) -> Iterator[FieldError]:
    """Yields errors: negative numbers, unknown values, and a selector that does not match the template's labels."""
    spec = deployment["spec"]
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        if (spec.get(name) or 0) < 0:
            yield invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    if spec["progressDeadlineSeconds"] <= spec.get("minReadySeconds", 0):
        yield invalid(
            "spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"], "must be greater than minReadySeconds"
        )
    if spec["strategy"]["type"] not in _STRATEGIES:
        yield unsupported("spec.strategy.type", spec["strategy"]["type"], _STRATEGIES)
    yield from _selector(spec)
    yield from podtemplate.validate_template(spec["template"], "spec.template")
    restarts = spec["template"]["spec"]["restartPolicy"]
    if restarts != "Always":
        yield unsupported("spec.template.spec.restartPolicy", restarts, ("Always",))


def _selector(spec: Document) -> Iterator[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    wanted, terms = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not wanted and not terms:
        yield invalid("spec.selector", selector, "empty selector is invalid for deployment")
    yield from object_rules.labels(wanted, "spec.selector.matchLabels")
    for index, term in enumerate(terms):
        if term["operator"] not in _OPERATORS:
            yield unsupported(f"spec.selector.matchExpressions[{index}].operator", term["operator"], _OPERATORS)
    labels = spec["template"]["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()) or not all(_matches(t, labels) for t in terms):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _matches(term: Document, labels: Document) -> bool:
    value, values = labels.get(term["key"]), term.get("values") or []
    match term["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return value is None  # DoesNotExist


def validate_deployment_update(deployment: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change: the selector is immutable."""
    yield from validate_deployment(deployment)
    yield from object_rules.unchanged("spec.selector", old["spec"].get("selector"), deployment["spec"].get("selector"))


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    spec, status = document["spec"], document["status"]
    return [
        name,
        f"{status.get('readyReplicas', 0)}/{spec['replicas']}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        old,
        *podtemplate.containers_of(spec["template"]),
        pairs((spec.get("selector") or {}).get("matchLabels")),
    ]


PRINTER = Printer(
    (
        Column("Ready", description="Number of the pod with ready state"),
        Column("Up-to-date", described_by="status.updatedReplicas"),
        Column("Available", described_by="status.availableReplicas"),
        AGE,
        Column("Containers", description="Names of each container in the template.", priority=1),
        Column("Images", description="Images referenced by each container in the template.", priority=1),
        Column("Selector", described_by="spec.selector", priority=1),
    ),
    _cells,
)


ROWS = (
    Resource(
        group="apps",
        plural="deployments",
        singular="deployment",
        kind="Deployment",
        struct=SHAPES["Deployment"],
        short_names=("deploy",),
        categories=("all",),
        printer=PRINTER,
        has_status=True,
        default=default_deployment,
        validate=validate_deployment,
        validate_update=validate_deployment_update,
        warnings=lambda _: [_NOTHING_RUNS],
        generation_of=("spec",),
        storage_hash="8aSe+NMegvE=",
    ),
)
