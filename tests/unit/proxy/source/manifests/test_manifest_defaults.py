"""A manifest is served as the object would be after an API server has filled it in."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import msgspec
import pytest

from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.object_check import fill_in
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import ApiObject, Endpoints, EndpointSlice, Node, Service, ServiceCIDR, key_of
from nodeagent.proxy.source.manifests.manifest_defaults import with_defaults
from nodeagent.proxy.source.manifests.manifest_fields import ROWS
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator

TYPES = [None, "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]
ADDRESSES: list[dict[str, object]] = [
    {"clusterIP": "10.96.0.1"},
    {"clusterIPs": ["10.96.0.1", "fd00:96::1"]},
    {"clusterIP": "None"},
]
PORTS: list[dict[str, object]] = [
    {"port": 80},
    {"port": 80, "protocol": "", "nodePort": 30080},
    {"port": 53, "protocol": "UDP", "targetPort": 5353, "name": "http"},
]
REST: list[dict[str, object]] = [
    {},
    {"sessionAffinity": "ClientIP"},
    {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
    {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
    {"externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 30999},
    {"internalTrafficPolicy": "Local"},
]
SLICE = {
    "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "here"}, {"addresses": ["10.0.0.2"], "nodeName": "there"}],
    "ports": [{"port": 8080}, {"port": 5353, "protocol": "UDP", "name": "http"}],
}


def from_server(cls: type[Any], document: Mapping[str, object]) -> Any:
    """The object as the agent reads it from an API server that stored `document`."""
    row = ROWS[cls.__name__]
    stored = normalise(row.struct, document)
    fill_in(row, stored)
    return msgspec.convert(stored, cls)


def from_manifest(cls: type[Any], document: Mapping[str, object]) -> Any:
    return with_defaults(msgspec.convert(document, cls))


class _Snapshot:
    node = None
    service_cidrs = ()

    def __init__(self, service: Service, found: EndpointSlice) -> None:
        self.services = {key_of(service): service}
        self._slice = found

    def slices_of(self, service: ObjectKey) -> list[EndpointSlice]:
        return [self._slice]


def served(service: Service, found: EndpointSlice) -> Mapping[ObjectKey, ServiceState | None]:
    return Translator().update(_Snapshot(service, found), None, Context(node_name="here"))


@pytest.mark.parametrize("type_", TYPES)
def test_defaults_have_the_effect_of_those_of_an_api_server(type_: str | None) -> None:
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}} if type_ == "LoadBalancer" else {}
    frontends = 0
    for addresses, port, rest in product(ADDRESSES, PORTS, REST):
        spec = {**({"type": type_} if type_ else {}), **addresses, "ports": [port], **rest}
        document = {"metadata": {"name": "web"}, "spec": spec, **ingress}
        ours = served(from_manifest(Service, document), from_manifest(EndpointSlice, SLICE))
        theirs = served(from_server(Service, document), from_server(EndpointSlice, SLICE))
        assert ours == theirs, spec
        frontends += sum(len(state.frontends) for state in ours.values() if state is not None)
    assert (frontends == 0) == (type_ == "ExternalName")


@pytest.mark.parametrize(
    ("cls", "document"),
    [
        pytest.param(EndpointSlice, SLICE, id="slice"),
        pytest.param(
            Endpoints,
            {"metadata": {"name": "web"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
            id="Endpoints",
        ),
        pytest.param(Node, {"metadata": {"name": "here"}, "status": {}}, id="Node"),
        pytest.param(ServiceCIDR, {"metadata": {"name": "x"}, "spec": {"cidrs": ["10.96.0.0/16"]}}, id="ServiceCIDR"),
    ],
)
def test_defaults_of_other_kinds_are_those_of_an_api_server(cls: type[ApiObject], document: dict[str, object]) -> None:
    assert said(from_manifest(cls, document)) == said(from_server(cls, document))


def said(value: Any) -> Any:
    """Without what says nothing: null, empty text, empty lists and objects."""
    value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {name: said(item) for name, item in value.items() if said(item) not in (None, "", [], {})}
    return [said(item) for item in value] if isinstance(value, list | tuple) else value
