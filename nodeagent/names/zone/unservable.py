"""Finds what of a Service cannot be served by name, and why. Pure.

An API server refuses most of it; manifests may contain anything.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from nodeagent.model.addresses import parse_address
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.names.zone.service_names import ServiceNames, is_label
from nodeagent.wire.dns.domain_names import LONGEST_LABEL, LONGEST_NAME, BadName, from_text

_SVC = len(b"\3svc")


class Fault(NamedTuple):
    """Why a name cannot be answered. reason: CamelCase. whole: the Service has no names at all. detail: what is wrong, and its effect."""

    reason: str
    detail: str
    whole: bool = False


def faults_of(
    service: Service, slices: Collection[EndpointSlice], names: ServiceNames, zones: Sequence[str]
) -> Iterator[Fault]:
    """Yields everything of this Service that has no name. names: the result of `names_of`. zones: of the cluster."""
    for what, text in (("name", names.name), ("namespace", names.namespace)):
        if not is_label(text):
            yield Fault("NotADnsLabel", f"its {what} {text!r} is not a DNS label: it has no names", whole=True)
            return
    for zone in zones:
        longest = max((len(host) for group in names.groups for host in group.hosts), default=0)
        size = len(from_text(zone)) + _SVC + 1 + len(names.namespace) + 1 + len(names.name)
        if size > LONGEST_NAME or (longest and size + 1 + longest > LONGEST_NAME):
            yield Fault(
                "NameTooLong", f"its names in {zone} would be longer than {LONGEST_NAME} bytes: it has none", whole=True
            )
            return
    yield from _port_faults(service, slices)
    yield from _host_faults(slices)
    if service.spec.type == "ExternalName":
        yield from _external_faults(service.spec.external_name or "")


def _port_faults(service: Service, slices: Collection[EndpointSlice]) -> Iterator[Fault]:
    listed = {port.name or "" for port in service.spec.ports or ()}
    listed |= {port.name or "" for one in slices for port in one.ports or ()}
    for name in sorted(listed):
        if len(name) >= LONGEST_LABEL:
            yield Fault(
                "PortNameTooLong",
                f"port {name}: with its underscore the name has more than {LONGEST_LABEL} bytes, so it has no SRV record",
            )


def _host_faults(slices: Collection[EndpointSlice]) -> Iterator[Fault]:
    hosts = {endpoint.hostname for one in slices for endpoint in one.endpoints or () if endpoint.hostname}
    for host in sorted(hosts):
        if not is_label(host.lower()):
            yield Fault(
                "HostnameNotADnsLabel",
                f"hostname {host!r} is not a DNS label: the endpoint is named after its address",
            )


def _external_faults(target: str) -> Iterator[Fault]:
    if parse_address(target) is not None:
        yield Fault("ExternalNameIsAddress", f"externalName {target} is an address and no name: NXDOMAIN")
        return
    try:
        from_text(target)
    except BadName as error:
        yield Fault("BadExternalName", f"externalName {target!r}: {error}: NXDOMAIN")
        return
    if not target.rstrip("."):
        yield Fault("BadExternalName", "externalName is empty: NXDOMAIN")
