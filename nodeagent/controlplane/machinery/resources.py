"""The resources this server has: one row each. Everything generic (verbs, discovery, tables, schemas) reads the row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from nodeagent.controlplane import defaults, events, tables
from nodeagent.controlplane.documents import Document, Json
from nodeagent.controlplane.machinery.formats import Check, dns_label, dns_subdomain
from nodeagent.controlplane.machinery.schema.kinds import structs
from nodeagent.controlplane.machinery.schema.shapes import Struct
from nodeagent.controlplane.status import FieldError
from nodeagent.controlplane.validation import endpoints, nodes, services

Validate: TypeAlias = Callable[[Document], list[FieldError]]
ValidateUpdate: TypeAlias = Callable[[Document, Document], list[FieldError]]

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _nothing(_: Document) -> None:
    return None


def _no_errors(_: Document) -> list[FieldError]:
    return []


def _same(document: Document) -> Document:
    return document


def _any_name(_: str) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object and how it is treated."""

    group: str = ""
    version: str = "v1"
    plural: str
    singular: str
    kind: str
    struct: Struct
    printer: tables.Printer
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    has_status: bool = False
    verbs: tuple[str, ...] = VERBS
    collection: str = ""
    """Where objects are stored; two resources may be faces of one collection."""
    name_check: Check = dns_subdomain
    default: Callable[[Document], None] = _nothing
    validate: Validate = _no_errors
    validate_update: ValidateUpdate | None = None
    generation_of: tuple[str, ...] = ()
    """Fields whose change counts up metadata.generation; empty: the kind has no generation."""
    fields: tuple[str, ...] = ()
    """What field selectors may name, besides metadata.name and metadata.namespace."""
    to_stored: Callable[[Document], Document] = _same
    from_stored: Callable[[Document], Document] = _same
    stored_struct: Struct | None = None
    """The struct of the stored form, where it differs."""
    returns_deleted: bool = False
    """A deletion answers with the object instead of a Status."""
    creates_on_update: bool = False
    """An update of an object that does not exist creates it."""
    deprecated: str = ""
    """Sent as a Warning header with every response."""
    storage_hash: str = ""

    @property
    def group_version(self) -> str:
        """`v1` or `discovery.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_in(self) -> str:
        """The name of the collection."""
        return self.collection or self.plural

    @property
    def selectable(self) -> tuple[str, ...]:
        """All fields a field selector may name."""
        own = ("metadata.name", "metadata.namespace") if self.namespaced else ("metadata.name",)
        return own + self.fields

    @property
    def converts(self) -> bool:
        """The stored form is not the one clients of this resource see."""
        return self.stored_struct is not None

    @property
    def opening(self) -> bytes:
        """How the encoded object begins; the stored body follows after its own brace."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.group_version}",'.encode()

    def path(self, namespace: str, name: str) -> str:
        """The path of an object in its collection."""
        return f"{namespace}/{name}" if self.namespaced else name


class FieldReader:
    """Reads the selectable fields of encoded objects, and nothing else of them."""

    def __init__(self, resource: Resource) -> None:
        self._paths = tuple((path, path.split(".")) for path in resource.selectable)
        tree: dict[str, Json] = {}
        for _, steps in self._paths:
            node = tree
            for step in steps[:-1]:
                node = node.setdefault(step, {})
            node[steps[-1]] = None
        self._decoder: msgspec.json.Decoder[Json] = msgspec.json.Decoder(_struct_of(tree))

    def read(self, body: bytes) -> Mapping[str, str]:
        """Values by path, as field selectors compare them: text, empty when absent."""
        document = self._decoder.decode(body)
        return {path: _text(document, steps) for path, steps in self._paths}


def _struct_of(tree: Mapping[str, Json]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Json, Json]] = [
        (name, Json if below is None else _struct_of(below) | None, None) for name, below in tree.items()
    ]
    return msgspec.defstruct("Selectable", fields)


def _text(value: Json, steps: Iterable[str]) -> str:
    for step in steps:
        value = getattr(value, step, None)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _rows() -> Sequence[Resource]:
    shape = structs()
    return (
        Resource(
            plural="configmaps", singular="configmap", kind="ConfigMap", struct=shape["ConfigMap"], short_names=("cm",),
            printer=tables.CONFIG_MAP, validate=nodes.validate_data, validate_update=nodes.validate_data_update,
            storage_hash="qFsyl6wFWjQ=",
        ),
        Resource(
            plural="endpoints", singular="endpoints", creates_on_update=True, kind="Endpoints", struct=shape["Endpoints"], short_names=("ep",),
            printer=tables.ENDPOINTS, default=defaults.default_endpoints, validate=endpoints.validate_endpoints,
            deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
            storage_hash="fWeeMqaN/OA=",
        ),
        Resource(
            plural="events", singular="event", kind="Event", struct=shape["CoreEvent"], short_names=("ev",),
            printer=tables.EVENT, default=defaults.default_event, validate=nodes.validate_event,
            fields=(
                "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
                "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
                "reason", "reportingComponent", "type",
            ),
            storage_hash="r2yiGXH7wu8=",
        ),
        Resource(
            plural="namespaces", singular="namespace", kind="Namespace", struct=shape["Namespace"], short_names=("ns",),
            printer=tables.NAMESPACE, namespaced=False, has_status=True, name_check=dns_label,
            verbs=tuple(verb for verb in VERBS if verb != "deletecollection"), default=defaults.default_namespace,
            fields=("status.phase",), storage_hash="Q3oi5N2YM8M=",
        ),
        Resource(
            plural="nodes", singular="node", kind="Node", struct=shape["Node"], short_names=("no",),
            printer=tables.NODE, namespaced=False, has_status=True, default=defaults.default_node,
            validate=nodes.validate_node, validate_update=nodes.validate_node_update, fields=("spec.unschedulable",),
            storage_hash="XwShjMxG9Fs=",
        ),
        Resource(
            plural="pods", singular="pod", returns_deleted=True, kind="Pod", struct=shape["Pod"], short_names=("po",), categories=("all",),
            printer=tables.POD, has_status=True, default=defaults.default_pod, validate=nodes.validate_pod,
            validate_update=nodes.validate_pod_update, generation_of=("spec",),
            fields=(
                "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
                "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
            ),
            storage_hash="xPOwRZ+Yhw8=",
        ),
        Resource(
            plural="secrets", singular="secret", kind="Secret", struct=shape["Secret"], printer=tables.SECRET,
            default=defaults.default_secret, validate=nodes.validate_data, validate_update=nodes.validate_data_update,
            fields=("type",), storage_hash="S6u1pOWzb84=",
        ),
        Resource(
            plural="serviceaccounts", singular="serviceaccount", returns_deleted=True, kind="ServiceAccount", struct=shape["ServiceAccount"],
            short_names=("sa",), printer=tables.ACCOUNT, storage_hash="pbx9ZvyFpBE=",
        ),
        Resource(
            plural="services", singular="service", returns_deleted=True, creates_on_update=True, kind="Service", struct=shape["Service"], short_names=("svc",),
            categories=("all",), printer=tables.SERVICE, has_status=True, name_check=dns_label,
            default=defaults.default_service, validate=services.validate_service,
            validate_update=services.validate_service_update, fields=("spec.clusterIP", "spec.type"),
            storage_hash="0/CO1lhkEBI=",
        ),
        Resource(
            group="events.k8s.io", plural="events", singular="event", kind="Event", struct=shape["Event"],
            short_names=("ev",), printer=tables.EVENT, default=defaults.default_event, validate=nodes.validate_event,
            to_stored=events.to_core, from_stored=events.from_core, stored_struct=shape["CoreEvent"],
            fields=("regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason", "type"),
        ),
        Resource(
            group="networking.k8s.io", plural="ipaddresses", singular="ipaddress", kind="IPAddress",
            struct=shape["IPAddress"], short_names=("ip",), printer=tables.IP_ADDRESS, namespaced=False,
            name_check=_any_name, validate=nodes.validate_ip_address, validate_update=nodes.validate_ip_address_update,
        ),
        Resource(
            group="networking.k8s.io", plural="servicecidrs", singular="servicecidr", kind="ServiceCIDR",
            struct=shape["ServiceCIDR"], printer=tables.SERVICE_CIDR, namespaced=False, has_status=True,
            validate=nodes.validate_service_cidr, validate_update=nodes.validate_service_cidr_update,
        ),
        Resource(
            group="coordination.k8s.io", plural="leases", singular="lease", creates_on_update=True, kind="Lease", struct=shape["Lease"],
            printer=tables.LEASE, validate=nodes.validate_lease,
        ),
        Resource(
            group="discovery.k8s.io", plural="endpointslices", singular="endpointslice", kind="EndpointSlice",
            struct=shape["EndpointSlice"], printer=tables.SLICE, default=defaults.default_slice,
            validate=endpoints.validate_slice, validate_update=endpoints.validate_slice_update,
            generation_of=("addressType", "endpoints", "ports"), storage_hash="qgS0xkrxYAI=",
        ),
    )  # fmt: skip


class Catalog:
    """The rows, found by group, version and plural name, in the order discovery lists them."""

    def __init__(self) -> None:
        self.rows = tuple(_rows())
        self._by_name = {(row.group, row.version, row.plural): row for row in self.rows}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The row of a resource."""
        return self._by_name.get((group, version, plural))

    def named(self, plural: str, group: str = "") -> Resource:
        """The row of a resource the server itself works with. Raises KeyError when there is none."""
        return self._by_name[(group, "v1", plural)]

    def groups(self) -> dict[str, list[Resource]]:
        """Rows by group, the core group first."""
        found: dict[str, list[Resource]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return found
