"""Builders of API objects: what a test says in one line becomes the object as the API server would send it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodeagent.model.objects import LABEL_SERVICE_NAME, EndpointSlice, Service
from nodeagent.proxy.translate.context import Context


@pytest.fixture
def context() -> Context:
    """A dual-stack node called ``here`` in zone-a."""
    return Context(node_name="here", zone="zone-a", node_addresses=("192.168.0.2", "2001:db8::2"))


@pytest.fixture
def service() -> Callable[..., Service]:
    """service("web", clusterIP=…, ports=[…], ingress=["1.2.3.4"], created="…"): further keywords are the spec's."""

    def build(name: str = "web", *, ingress: Any = (), created: str | None = None, **spec: Any) -> Service:
        metadata = {"name": name, "namespace": "default", "creationTimestamp": created}
        spec = {"clusterIP": "10.96.0.10", "ports": [{"port": 80}], **spec}
        entries = [{"ip": entry} if isinstance(entry, str) else entry for entry in ingress]
        status = {"loadBalancer": {"ingress": entries}}
        return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Service)

    return build


@pytest.fixture
def endpoint_slice() -> Callable[..., EndpointSlice]:
    """endpoint_slice("10.0.0.1@here", {"addresses": […], …}, ports=[…]): ``address@node`` or a whole endpoint."""

    def build(
        *endpoints: Any, name: str = "web-1", of: str = "web", family: str = "IPv4", ports: Any = None
    ) -> EndpointSlice:
        metadata = {"name": name, "namespace": "default", "labels": {LABEL_SERVICE_NAME: of}}
        whole = [spelled_out(item) if isinstance(item, str) else item for item in endpoints]
        ports = [{"name": "", "port": 8080, "protocol": "TCP"}] if ports is None else ports
        fields = {"metadata": metadata, "addressType": family, "endpoints": whole, "ports": ports}
        return msgspec.convert(fields, EndpointSlice)

    def spelled_out(short: str) -> dict[str, Any]:
        address, at, node = short.partition("@")
        return {"addresses": [address], **({"nodeName": node} if at else {})}

    return build
