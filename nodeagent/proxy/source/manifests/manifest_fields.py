"""The fields that objects in manifests may have, and the words that some of them may hold.

The API server refuses a field that it does not know and a word in the wrong case; the decoder would not notice either.
Below a field that is not described further anything is allowed. Followed: the API of Kubernetes 1.36.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from nodeagent.model.text import did_you_mean
from nodeagent.wire.yaml.yaml_documents import Value


class Words(frozenset[str]):
    """What a field may hold."""


class Fields(NamedTuple):
    """The fields of an object, and of those in lists of objects; `below`: what is known of the values."""

    names: frozenset[str]
    below: tuple[tuple[str, "Fields | Words"], ...]


class Misfit(NamedTuple):
    """path: msgspec's spelling (``$.spec.ports[0].port``)."""

    path: str
    reason: str
    detail: str


def _fields(plain: str, **described: Fields | Words) -> Fields:
    """plain: names of fields whose values are not looked at. described: of those that are, the keyword is the name."""
    return Fields(frozenset((*plain.split(), *described)), tuple(described.items()))


_PROTOCOL = Words({"TCP", "UDP", "SCTP"})
_FAMILY = Words({"IPv4", "IPv6"})
_POLICY = Words({"Cluster", "Local"})

_META = _fields(
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp"
    " deletionGracePeriodSeconds labels annotations ownerReferences finalizers managedFields"
)
_REFERENCE = _fields("kind namespace name uid apiVersion resourceVersion fieldPath")
_SERVICE = _fields(
    "apiVersion kind",
    metadata=_META,
    spec=_fields(
        "selector clusterIP clusterIPs externalIPs loadBalancerIP loadBalancerSourceRanges externalName"
        " healthCheckNodePort publishNotReadyAddresses allocateLoadBalancerNodePorts loadBalancerClass",
        ports=_fields("name port targetPort nodePort appProtocol", protocol=_PROTOCOL),
        type=Words({"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}),
        sessionAffinity=Words({"None", "ClientIP"}),
        sessionAffinityConfig=_fields("", clientIP=_fields("timeoutSeconds")),
        externalTrafficPolicy=_POLICY,
        internalTrafficPolicy=_POLICY,
        ipFamilies=_FAMILY,
        ipFamilyPolicy=Words({"SingleStack", "PreferDualStack", "RequireDualStack"}),
        trafficDistribution=Words({"PreferClose", "PreferSameZone", "PreferSameNode"}),
    ),
    status=_fields(
        "conditions",
        loadBalancer=_fields("", ingress=_fields("ip hostname ports", ipMode=Words({"VIP", "Proxy"}))),
    ),
)
_SLICE = _fields(
    "apiVersion kind",
    metadata=_META,
    addressType=Words({"IPv4", "IPv6", "FQDN"}),
    endpoints=_fields(
        "addresses deprecatedTopology hostname nodeName zone",
        conditions=_fields("ready serving terminating"),
        hints=_fields("", forZones=_fields("name"), forNodes=_fields("name")),
        targetRef=_REFERENCE,
    ),
    ports=_fields("name port appProtocol", protocol=_PROTOCOL),
)
_ADDRESS = _fields("ip hostname nodeName", targetRef=_REFERENCE)
_ENDPOINTS = _fields(
    "apiVersion kind",
    metadata=_META,
    subsets=_fields(
        "",
        addresses=_ADDRESS,
        notReadyAddresses=_ADDRESS,
        ports=_fields("name port appProtocol", protocol=_PROTOCOL),
    ),
)
_NODE = _fields(
    "apiVersion kind",
    metadata=_META,
    spec=_fields("podCIDR podCIDRs providerID unschedulable taints configSource externalID"),
    status=_fields(
        "capacity allocatable phase conditions daemonEndpoints nodeInfo images volumesInUse volumesAttached config"
        " runtimeHandlers features declaredFeatures",
        addresses=_fields(
            "address", type=Words({"Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"})
        ),
    ),
)
_SERVICE_CIDR = _fields("apiVersion kind", metadata=_META, spec=_fields("cidrs"), status=_fields("conditions"))

FIELDS: Mapping[str, Fields] = {
    "Service": _SERVICE,
    "EndpointSlice": _SLICE,
    "Endpoints": _ENDPOINTS,
    "Node": _NODE,
    "ServiceCIDR": _SERVICE_CIDR,
}
"""By kind."""

KINDS_OF_GROUP: Mapping[str, frozenset[str]] = {
    "": frozenset(
        [
            "Binding",
            "ComponentStatus",
            "Config",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "List",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ]
    ),
    "apps": frozenset(("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")),
    "batch": frozenset(("CronJob", "Job")),
    "discovery.k8s.io": frozenset(("EndpointSlice",)),
    "networking.k8s.io": frozenset(("Ingress", "IngressClass", "IPAddress", "NetworkPolicy", "ServiceCIDR")),
}
"""All kinds of some groups, lists aside, and kubeconfigs (`v1 Config`); of other groups nothing is known."""


def fits(kind: str, value: Value | Raw) -> bool:
    """Whether there is nothing for `misfits` to find in an object of one of `FIELDS`.

    msgspec looks, at a twentieth of the time; it also finds wrong types, which the decoder has reported already.
    """
    try:
        if isinstance(value, Raw):
            msgspec.json.decode(value, type=_strict(kind))
        else:
            msgspec.convert(value, type=_strict(kind))
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError):
        return False
    return True


@cache
def _strict(kind: str) -> type[Struct]:
    """A type that only what fits can be decoded into."""
    return _struct_of(FIELDS[kind])


def _struct_of(fields: Fields) -> type[Struct]:
    described: dict[str, Any] = {}
    for name, below in fields.below:
        one: Any = Literal[("", *sorted(below))] if isinstance(below, Words) else _struct_of(below)
        described[name] = one | list[one] | None
    members = [(name, described.get(name, Any), None) for name in sorted(fields.names)]
    return msgspec.defstruct("Strict", members, forbid_unknown_fields=True)


def misfits(fields: Fields, value: Value, path: str = "$") -> Iterator[Misfit]:
    """Every field that is unknown and every word that its field cannot hold. Wrong types are the decoder's to refuse."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from misfits(fields, item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    for name in value.keys() - fields.names:
        yield Misfit(f"{path}.{name}", "UnknownField", f"unknown field{did_you_mean(name, fields.names)}")
    for name, below in fields.below:
        inner = value.get(name)
        if isinstance(below, Fields):
            yield from misfits(below, inner, f"{path}.{name}")
        elif not _are_words(below, inner):
            words = inner if isinstance(inner, list) else [inner]
            for word in words:
                if isinstance(word, str) and word and word not in below:
                    detail = f"{word!r} is none of {', '.join(sorted(below))}{did_you_mean(word, below)}"
                    yield Misfit(f"{path}.{name}", "UnknownValue", detail)


def unknown_kind(version: str, kind: str) -> str | None:
    """Why no API server would know this kind; None when one may."""
    group = version.rpartition("/")[0]
    known = KINDS_OF_GROUP.get(group)
    if known is None or kind in known or kind.removesuffix("List") in known:
        return None
    elsewhere = next((other for other, kinds in KINDS_OF_GROUP.items() if kind in kinds), None)
    if elsewhere is not None:
        return f"there is no kind {kind} in apiVersion {version}; it is of the group {elsewhere or 'v1'}"
    everything = frozenset().union(*KINDS_OF_GROUP.values())
    return (
        f"there is no kind {kind} in apiVersion {version}{did_you_mean(kind, known) or did_you_mean(kind, everything)}"
    )


def _are_words(words: Words, value: Value) -> bool:
    """Empty text counts as absent, as it does for the API server."""
    if isinstance(value, list):
        return all(_are_words(words, item) for item in value)
    return not isinstance(value, str) or not value or value in words


def prepare(kinds: Iterable[type[Struct]]) -> None:
    """msgspec prepares a type at its first use, and crashes when two threads do that at a time."""
    for kind in kinds:
        msgspec.json.Decoder(kind)


prepare(map(_strict, FIELDS))
