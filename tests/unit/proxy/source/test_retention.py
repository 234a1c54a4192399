"""What is kept of a slice reads as what came, however little memory it takes."""

import pytest
from msgspec.structs import replace

from nodeagent.model.objects import Endpoint, EndpointConditions, EndpointSlice, ObjectMeta
from nodeagent.model.stored_endpoints import StoredEndpoints, without_addresses
from nodeagent.proxy.source.retention import Retention

READY = Endpoint(("10.1.0.1",), EndpointConditions(ready=True), "node-a", "z", None, "web-0")


def retained(*endpoints: Endpoint, for_names: bool = True) -> EndpointSlice:
    return Retention(for_names=for_names).retain(EndpointSlice(ObjectMeta("web-a", "demo"), "IPv4", endpoints))


@pytest.mark.parametrize(
    "endpoints",
    [
        (),
        (READY,),
        (READY, replace(READY, addresses=("10.1.0.2",)), replace(READY, addresses=("2001:db8::1",), hostname=None)),
        (READY, replace(READY, addresses=None)),
        (READY, replace(READY, addresses=())),
        (replace(READY, addresses=("10.1.0.1", "10.1.0.2")),),
        (replace(READY, addresses=("10.1.0.1,10.1.0.2",)), READY),
        (replace(READY, addresses=("",)),),
    ],
    ids=[
        "no endpoint",
        "one",
        "three",
        "no addresses",
        "empty addresses",
        "two addresses",
        "a comma",
        "an empty address",
    ],
)
def test_endpoints_come_back_as_they_were(endpoints: tuple[Endpoint, ...]) -> None:
    held = retained(*endpoints).endpoints
    assert held is not None
    assert (tuple(held), len(held), bool(held)) == (endpoints, len(endpoints), bool(endpoints))
    assert held == endpoints
    assert [one.node_name for one in without_addresses(held)] == [one.node_name for one in endpoints]


def test_endpoints_with_one_address_each_are_packed() -> None:
    held = retained(READY, replace(READY, addresses=("10.1.0.2",))).endpoints
    assert isinstance(held, StoredEndpoints)
    assert (held[1].addresses, [one.addresses for one in held[:1]]) == (("10.1.0.2",), [("10.1.0.1",)])


def test_packed_endpoints_differ_in_an_address_and_in_anything_else() -> None:
    held = retained(READY).endpoints
    assert held == retained(READY).endpoints
    for other in (
        replace(READY, addresses=("10.1.0.2",)),
        replace(READY, node_name="node-b"),
        replace(READY, zone=None),
    ):
        assert held != retained(other).endpoints


def test_hostnames_are_kept_for_names_only() -> None:
    assert [one.hostname for one in retained(READY, for_names=False).endpoints or ()] == [None]
