"""What the API server would say to an object that somebody means to create. Pure."""

from typing import NamedTuple

from nodeagent.apiserver.machinery.schema.decoding import TypeMismatch, normalise
from nodeagent.kinds.catalog import rows
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.object_rules import metadata
from nodeagent.kinds.description.resources import Resource

DEFAULT_NAMESPACE = "default"


class Complaint(NamedTuple):
    """path: of the field (``spec.ports[0].port``), empty for the object as a whole. text: one line, the server's words."""

    path: str
    text: str


class ManifestCheck:
    """Checks objects one by one; nothing is allocated, stored or compared with other objects."""

    def __init__(self) -> None:
        self._rows = {(row.group, row.kind): row for row in rows()}

    def complaints(self, version: str, kind: str, given: Document) -> list[Complaint]:
        """What is wrong with an object of this apiVersion and kind; nothing for kinds that the server has not.

        An apiVersion other than the server's own is checked as that: fields do not differ between those that are read.
        """
        row = self._rows.get((version.rpartition("/")[0], kind))
        if row is None:
            return []
        unknown: list[str] = []
        try:
            document = normalise(row.struct, given, unknown)
        except TypeMismatch as error:
            return [Complaint("", str(error))]
        _complete(row, document)
        errors = [*metadata(document, row.name_check, namespaced=row.namespaced), *row.validate(document)]
        return [
            *(Complaint(path, "unknown field") for path in unknown),
            *(Complaint(error.field, error.text) for error in errors),
        ]


def _complete(row: Resource, document: Document) -> None:
    """What is filled in before validation: the namespace, defaults, and the two spellings of the cluster addresses."""
    if row.namespaced:
        document["metadata"].setdefault("namespace", DEFAULT_NAMESPACE)
    row.default(document)
    spec = document.get("spec") or {}
    if row.kind == "Service" and spec.get("type") != "ExternalName":
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        elif spec.get("clusterIPs") and not spec.get("clusterIP"):
            spec["clusterIP"] = spec["clusterIPs"][0]
