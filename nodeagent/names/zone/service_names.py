"""The part of a Service and its EndpointSlices that its names need, in a form that is cheap to send and to hold."""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec import Struct

from nodeagent.model.addresses import parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, key_of

_LABEL = re.compile(r"[-_a-z0-9]{1,63}")
NO_PORT = -1
"""The port number of an entry without one: its addresses are used, but it has no SRV record."""


class NamedPort(NamedTuple):
    """name and protocol are in lower case; the name may be empty."""

    name: str
    protocol: str
    port: int


class EndpointGroup(Struct, frozen=True, gc=False, array_like=True):
    """The ready endpoints of one slice.

    addresses: canonical. hosts: the first label of each endpoint's name, in lower case; empty for one that is made from
    its address. If `hosts` is empty, every name is made from its address.
    """

    ports: tuple[NamedPort, ...]
    addresses: tuple[str, ...]
    hosts: tuple[str, ...] = ()

    def endpoints(self) -> Iterator[tuple[str, str]]:
        """Yields name and address of each endpoint."""
        for index, address in enumerate(self.addresses):
            yield (self.hosts[index] if self.hosts else "") or host_of(address), address


class ServiceNames(Struct, frozen=True, gc=False, array_like=True):
    """Everything on which the names of one Service depend. Without ClusterIPs and external name: see `headless`."""

    namespace: str
    name: str
    headless: bool = False
    cluster_ips: tuple[str, ...] = ()
    external_name: str = ""
    ports: tuple[NamedPort, ...] = ()
    groups: tuple[EndpointGroup, ...] = ()

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


def names_of(service: Service, slices: Collection[EndpointSlice]) -> ServiceNames:
    """Returns what the names of a Service depend on.
    An endpoint is used if its `ready` is true or absent; publishNotReadyAddresses has its effect in the controller that
    writes slices."""
    spec = service.spec
    key = key_of(service)
    if spec.type == "ExternalName":
        return ServiceNames(key.namespace, key.name, external_name=spec.external_name or "")
    texts = spec.cluster_ips or ((spec.cluster_ip,) if spec.cluster_ip else ())
    return ServiceNames(
        key.namespace,
        key.name,
        headless="None" in texts,
        cluster_ips=tuple(filter(None, map(parse_address, texts))),
        ports=tuple(
            NamedPort((port.name or "").lower(), (port.protocol or "TCP").lower(), port.port)
            for port in spec.ports or ()
        ),
        groups=tuple(group for one in slices if (group := _group(one)) is not None),
    )


def _group(endpoints: EndpointSlice) -> EndpointGroup | None:
    """Returns the ready endpoints of a slice; None if it has none, or if its addresses are host names."""
    if endpoints.address_type == "FQDN":
        return None
    addresses = []
    hosts = []
    for endpoint in endpoints.endpoints or ():
        if endpoint.conditions is not None and endpoint.conditions.ready is False:
            continue
        for text in endpoint.addresses or ():
            address = parse_address(text)
            if address is not None:
                addresses.append(address)
                named = (endpoint.hostname or "").lower()
                hosts.append(named if is_label(named) else ("" if text == address else host_of(text).lower()))
    if not addresses:
        return None
    ports = tuple(
        NamedPort(
            (port.name or "").lower(), (port.protocol or "TCP").lower(), NO_PORT if port.port is None else port.port
        )
        for port in endpoints.ports or ()
    )
    return EndpointGroup(ports, tuple(addresses), tuple(hosts) if any(hosts) else ())


def host_of(address: str) -> str:
    """Returns the label for an address: ``10-244-1-5``, ``fd00--5``, and ``fd00--0`` for ``fd00::``: no label ends in
    `-`."""
    if ":" not in address:
        return address.replace(".", "-")
    dashed = address.replace(":", "-")
    return dashed + "0" if dashed.endswith("-") else dashed


def is_label(text: str) -> bool:
    """Returns whether the text, in lower case, is a valid label of a name that clients can ask for."""
    return _LABEL.fullmatch(text) is not None
