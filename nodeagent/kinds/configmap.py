"""ConfigMap (core/v1): data for programs."""

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.object_rules import validate_data, validate_data_update
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes

SHAPES = read_shapes(r"""
ConfigMap = io.k8s.api.core.v1 : ConfigMap holds configuration data for pods to consume.
  metadata    ObjectMeta #1 : Standard object's metadata.
  immutable   *bool #4 : Immutable, if set to true, ensures that data stored in the ConfigMap cannot be updated.
  data        {string} #2 : Data contains the configuration data.
  binaryData  {bytes} #3 : BinaryData contains the binary data.
""")


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    return [name, len(document.get("data") or {}) + len(document.get("binaryData") or {}), old]


PRINTER = Printer((Column("Data", described_by="data"), AGE), _cells)


ROWS = (
    Resource(
        plural="configmaps",
        singular="configmap",
        kind="ConfigMap",
        struct=SHAPES["ConfigMap"],
        short_names=("cm",),
        printer=PRINTER,
        validate=validate_data,
        validate_update=validate_data_update,
        storage_hash="qFsyl6wFWjQ=",
    ),
)
