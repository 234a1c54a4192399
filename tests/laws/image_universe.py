"""Changes of a small cluster, and the tables of a family that follow them, without a kernel.

Few names, addresses and ports make conflicts, takeovers and returns the rule.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import LABEL_SERVICE_NAME, EndpointSlice, Service, ServiceCIDR
from nodeagent.proxy.dataplane.image.delta import Delta, apply_delta, diff_keys
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import TableImage, class_of, empty_image
from nodeagent.proxy.dataplane.image.render import endpoint_lists, programmed_keys, slot_keys
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import pick_class
from nodeagent.proxy.dataplane.program.schema import DATA_SETS
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator
from tests.harness.effort import examples

KEYS = [ObjectKey("default", name) for name in ("a", "b", "c", "d")]
CONTEXT = Context(node_name="here", node_addresses=("192.168.0.2", "2001:db8::2"))
NODE = NodeState(("10.96.0.0/16", "fd00:96::/112"), ("10.244.0.0/16", "fd00:244::/32"), ("192.168.0.2/32",))
TIMES = (None, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z")
PORTS = (
    ({"name": "x", "port": 80},),
    ({"name": "x", "port": 80, "nodePort": 30080},),
    ({"name": "x", "port": 80}, {"name": "y", "port": 53, "protocol": "UDP", "nodePort": 30053}),
    ({"name": "y", "port": 80, "protocol": "SCTP"}, {"name": "x", "port": 81, "nodePort": 30080}),
)
Object = dict[str, Any]
services: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {
        "created": st.sampled_from(TIMES),
        "ingress": st.lists(st.sampled_from(("198.51.100.1", "10.96.0.1", "2001:db8:100::1")), max_size=2),
        "clusterIPs": st.sampled_from((["10.96.0.1"], ["10.96.0.2", "fd00:96::2"], ["10.96.0.3"], ["fd00:96::1"])),
        "ports": st.sampled_from(PORTS),
        "externalIPs": st.lists(st.sampled_from(("192.0.2.1", "10.96.0.2", "2001:db8::1")), max_size=1),
        "externalTrafficPolicy": st.sampled_from(("Cluster", "Local")),
        "internalTrafficPolicy": st.sampled_from(("Cluster", "Local")),
        "sessionAffinity": st.sampled_from(("None", "ClientIP")),
        "timeout": st.sampled_from((60, 10800)),
        "loadBalancerSourceRanges": st.lists(st.sampled_from(("203.0.113.0/24", "2001:db8::/32")), max_size=2),
    }
)
members = st.tuples(st.integers(1, 6), st.sampled_from(("here", "there")))
endpoints = st.sets(members, max_size=6)
changes: st.SearchStrategy[tuple[ObjectKey, str, Any]] = st.tuples(
    st.sampled_from(KEYS), st.just("service"), services | st.none()
) | st.tuples(st.sampled_from(KEYS), st.sampled_from(("IPv4", "IPv6")), endpoints | st.none())
plain_services: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {
        "created": st.none(),
        "ingress": st.just([]),
        "clusterIPs": st.sampled_from((["10.96.0.1"], ["10.96.0.2", "fd00:96::2"])),
        "ports": st.sampled_from(
            (({"name": "x", "port": 80},), ({"name": "x", "port": 80}, {"name": "y", "port": 53, "protocol": "SCTP"}))
        ),
        "externalIPs": st.sampled_from(([], [], ["192.0.2.1"])),
        "externalTrafficPolicy": st.just("Cluster"),
        "internalTrafficPolicy": st.just("Cluster"),
        "sessionAffinity": st.sampled_from(("None", "None", "ClientIP")),
        "timeout": st.just(60),
        "loadBalancerSourceRanges": st.just([]),
    }
)
elsewhere = st.sets(st.tuples(st.integers(1, 9), st.sampled_from(("there", "there", "there", "here"))), max_size=9)
plain_changes: st.SearchStrategy[tuple[ObjectKey, str, Any]] = st.tuples(
    st.sampled_from(KEYS[:2]), st.sampled_from(("IPv4", "IPv4", "IPv6")), elsewhere
)


class Cluster:
    """The objects right now, as a snapshot."""

    node = None
    service_cidrs: Collection[ServiceCIDR] = ()

    def __init__(self) -> None:
        self.services: dict[ObjectKey, Service] = {}
        self._slices: dict[tuple[ObjectKey, str], EndpointSlice] = {}

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        found = (self._slices.get((service, family.value)) for family in Family)
        return [item for item in found if item is not None]

    def change(self, key: ObjectKey, what: str, to: Any) -> None:
        """Replace or delete a service, or its slice of one family."""
        if what == "service":
            self.services.pop(key, None)
            if to is not None:
                self.services[key] = service_of(key, **to)
        else:
            self._slices.pop((key, what), None)
            if to is not None:
                self._slices[key, what] = slice_of(key, what, to)


def service_of(key: ObjectKey, *, created: str | None, ingress: Any, timeout: int, **spec: Any) -> Service:
    sticky = {"clientIP": {"timeoutSeconds": timeout}}
    fields = {
        "metadata": {"name": key.name, "namespace": key.namespace, "creationTimestamp": created},
        "spec": {"type": "LoadBalancer", "clusterIP": spec["clusterIPs"][0], "sessionAffinityConfig": sticky, **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": address} for address in ingress]}},
    }
    families = ["IPv6" if ":" in address else "IPv4" for address in spec["clusterIPs"]]
    fields["spec"]["ipFamilies"] = families
    return msgspec.convert(fields, Service)


def slice_of(key: ObjectKey, family: str, numbers: Collection[tuple[int, str]]) -> EndpointSlice:
    prefix = "10.244.1." if family == "IPv4" else "fd00:244::"
    fields = {
        "metadata": {
            "name": f"{key.name}-{family}",
            "namespace": key.namespace,
            "labels": {LABEL_SERVICE_NAME: key.name},
        },
        "addressType": family,
        "endpoints": [{"addresses": [f"{prefix}{number}"], "nodeName": node} for number, node in sorted(numbers)],
        "ports": [
            {"name": "x", "port": 8080},
            {"name": "y", "port": 5353, "protocol": "UDP"},
            {"name": "y", "port": 9999, "protocol": "SCTP"},
        ],
    }
    return msgspec.convert(fields, EndpointSlice)


def lists_in(image: TableImage) -> dict[bytes, list[bytes]]:
    """The lists of endpoints as they are fetched from the kernel: none if a slot is empty."""
    lists: dict[bytes, list[bytes]] = {}
    for name in (schema.BACKENDS, schema.NODEPORT_BACKENDS):
        keys = list(programmed_keys(image, name))
        if len(set(keys)) == len(keys) == len(image[name]) and image[name].keys() == set(keys):
            lists |= endpoint_lists(image, name, {key: image[name][key] for key in keys})
    return lists


class Table:
    """What a driver does with a family's changes, without a kernel: every delta is a commit that worked.

    found: what the kernel holds when the driver starts; None: nothing. listed: its endpoints were read list by list."""

    def __init__(
        self,
        family: Family,
        found: TableImage | None = None,
        *,
        listed: bool = False,
        kind: type[DesiredImage] = DesiredImage,
    ) -> None:
        self.family = family
        self.desired = kind(family)
        self.programmed: TableImage = empty_image(DATA_SETS)
        if found is not None:
            self.programmed = {name: dict(elements) for name, elements in found.items()}
            image = {name: dict(elements) for name, elements in found.items()}
            self.desired.take_over(image, lists_in(image) if listed else {})
        self.translator = Translator()

    def sync(self, cluster: Cluster, dirty: Collection[ObjectKey] | None = None) -> Delta:
        """One pass; None: everything may have changed."""
        changed = self.translator.update(cluster, dirty, CONTEXT)
        self.desired.update(changed, self.desired.programmed)
        self.desired.set_node(NODE)
        assert self.desired.programmed == self.programmed  # a view of the image as it was, however much changed
        delta = diff_keys(self.desired.take_dirty(), self.desired.image, self.programmed)
        apply_delta(self.programmed, delta)
        return delta


FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
full = st.tuples(
    *(st.tuples(st.just(key), st.just("service"), services) for key in KEYS[:3]),
    *(st.tuples(st.just(key), st.sampled_from(("IPv4", "IPv6")), st.sets(members, min_size=1)) for key in KEYS[:3]),
)
"""A first step that leaves little undefined."""
sequences = st.builds(lambda first, rest: [[*first], *rest], full, st.lists(st.lists(changes, max_size=6), max_size=6))
thorough = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
usual = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
ROUTE_MAPS = (
    (schema.FRONTENDS, schema.BACKENDS),
    (schema.GUARDED_FRONTENDS, schema.BACKENDS),
    (schema.FRONTENDS_CLUSTER_SCOPE, schema.BACKENDS),
    (schema.FRONTENDS_LOCAL_SCOPE, schema.BACKENDS),
    (schema.NODEPORTS, schema.NODEPORT_BACKENDS),
    (schema.NODEPORTS_CLUSTER_SCOPE, schema.NODEPORT_BACKENDS),
    (schema.NODEPORTS_LOCAL_SCOPE, schema.NODEPORT_BACKENDS),
)


def canonical(image: TableImage) -> dict[str, Any]:
    """The image with the endpoints of each route as a set; their slots must be exactly those the class counts."""
    form: dict[str, Any] = {name: dict(elements) for name, elements in image.items()}
    for frontends, backends in ROUTE_MAPS:
        routes = form.setdefault(f"{frontends} routes", {})
        for key, value in image[frontends].items():
            picked = pick_class(class_of(value))
            if picked is not None:
                keys = [key + slot for slot in slot_keys(picked)]
                routes[key] = {form[backends].pop(each) for each in keys}
                assert len(routes[key]) == picked.count, "an endpoint has two slots"
    assert not form[schema.BACKENDS], "a slot beyond the count"
    assert not form[schema.NODEPORT_BACKENDS], "a slot beyond the count"
    return form


def from_scratch(cluster: Cluster, family: Family) -> Table:
    table = Table(family)
    table.sync(cluster)
    return table


damage = st.lists(st.tuples(st.sampled_from(DATA_SETS), st.integers(0, 99), st.integers(0, 99)), max_size=8)
"""Set, and two numbers of elements: an even first one is removed; an odd one, and another key, get the value of the second."""


def damaged(image: TableImage, edits: Iterable[tuple[str, int, int]]) -> TableImage:
    """Returns the image after other processes' edits."""
    found = {name: dict(elements) for name, elements in image.items()}
    for name, one, other in edits:
        elements = found[name]
        keys = sorted(elements)
        if not keys:
            continue
        key = keys[one % len(keys)]
        if one % 2:
            elements[key] = elements[bytes([other]) + key[1:]] = elements[keys[other % len(keys)]]
        else:
            del elements[key]
    return found
