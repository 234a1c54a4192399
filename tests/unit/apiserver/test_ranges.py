"""Which addresses and ports a server may hand out, and to whom it does."""

import asyncio
import time
from random import Random
from typing import Any

import pytest

from nodeagent.apiserver.addresses.allocation import (
    ADDRESSES,
    NODE_PORT_RECORDS,
    AllocationRefused,
    Allocator,
    Reservation,
)
from nodeagent.apiserver.addresses.port_bitmap import PortBitmap
from nodeagent.apiserver.addresses.ranges import (
    AddressRange,
    Pool,
    RangeRefused,
    parse_port_range,
    parse_service_ranges,
)
from nodeagent.apiserver.addresses.service_ranges import ServiceRanges
from nodeagent.apiserver.server_settings import ServerSettings, SettingsRefused, check
from nodeagent.apiserver.service_addresses import allocate
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change, draft
from nodeagent.apiserver.storage.store import Store


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("10.96.0.0/30", "has 4 addresses; at least 8", id="too small"),
        pytest.param("127.0.0.0/8", "is loopback", id="loopback"),
        pytest.param("169.254.0.0/16", "is link-local", id="link-local"),
        pytest.param("fe80::/64", "is link-local", id="IPv6 link-local"),
        pytest.param("10.96.0.0/12,10.112.0.0/12", "same IP family", id="one family twice"),
        pytest.param("10.0.0.0/8", "overlaps the pod range 10.244.0.0/16", id="overlaps the pods"),
        pytest.param("10.96.0.1/12", "not a CIDR", id="host bits"),
        pytest.param("", "takes one range", id="none"),
        pytest.param("10.96.0.0/12,fd00::/112,fd01::/112", "takes one range", id="three"),
    ],
)
def test_a_service_range_that_cannot_serve_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(RangeRefused, match=why):
        parse_service_ranges(text, [("pod range", "10.244.0.0/16")])


@pytest.mark.parametrize(
    ("text", "first", "size", "band"),
    [
        ("10.96.0.0/29", "10.96.0.1", 6, 0),
        ("10.96.0.0/24", "10.96.0.1", 254, 16),
        ("10.96.0.0/12", "10.96.0.1", 2**20 - 2, 256),
        ("fd00:10:96::/112", "fd00:10:96::1", 2**16 - 1, 256),
        ("fd00:10:96::/64", "fd00:10:96::1", 2**16 - 1, 256),
    ],
)
def test_the_usable_part_of_a_range(text: str, first: str, size: int, band: int) -> None:
    (found,) = parse_service_ranges(text)
    assert (found.first, found.pool) == (first, Pool(size, band))
    assert found.holds(first)
    assert found.holds(found.address(size - 1))
    assert not found.holds(found.address(size))


def test_every_number_is_tried_once_the_lower_band_last() -> None:
    tried = list(Pool(100, 20).candidates(Random(3)))
    assert sorted(tried) == list(range(100))
    assert set(tried[80:]) == set(range(20))


@pytest.mark.parametrize("text", ["30000", "0-10", "32767-30000", "30000-70000", "a-b"])
def test_an_invalid_port_range_is_refused(text: str) -> None:
    with pytest.raises(RangeRefused):
        parse_port_range(text)


def make_service(name: str = "web", **spec: Any) -> Any:
    ports = [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    return {"metadata": {"namespace": "demo", "name": name}, "spec": {"type": "ClusterIP", "ports": ports, **spec}}


def describe(address: str, namespace: str, name: str) -> bytes:
    return draft({"metadata": {"name": address, "resourceVersion": "0"}, "spec": {"parentRef": f"{namespace}/{name}"}})


def allocated(ranges: str, *services: Any, ports: str = "30000-30009", **further: Any) -> list[Any]:
    """Allocates for the services one after the other and commits what that takes; `further` are ServiceCIDRs by name."""

    async def scenario() -> None:
        async with Store(Log(":memory:"), clock=time.time) as store:
            found = ServiceRanges(store, parse_service_ranges(ranges))
            for name, document in further.items():
                body = draft({"metadata": {"name": name, "resourceVersion": "0"}, **document})
                await store.commit([Change("servicecidrs", name, 0, body)])
            await store.commit([Change("ranges", "servicenodeports", 0, PortBitmap(parse_port_range(ports)).draft())])
            allocator = Allocator(store, found, parse_port_range(ports), Random(5), describe)
            for service in services:
                reservation = allocate(allocator, service, None)
                if changes := [*reservation.changes, *allocator.record_ports(reservation)]:
                    await store.commit(changes)
                allocator.release(reservation)

    asyncio.run(scenario())
    return [service["spec"] for service in services]


def test_nobody_gives_back_what_is_recorded_for_another() -> None:
    address, port = "10.96.0.7", 30007
    of_second = draft(
        {"metadata": {"resourceVersion": "0"}, "spec": {"parentRef": {"namespace": "demo", "name": "second"}}}
    )
    held_by_second = draft({"metadata": {"resourceVersion": "0"}, "holder": "demo/second"})

    async def scenario() -> None:
        async with Store(Log(":memory:"), clock=time.time) as store:
            ranges = ServiceRanges(store, parse_service_ranges("10.96.0.0/24"))
            allocator = Allocator(store, ranges, parse_port_range("30000-30009"), Random(5), describe)
            await store.commit(
                [Change(ADDRESSES, address, 0, of_second), Change(NODE_PORT_RECORDS, str(port), 0, held_by_second)]
            )
            bitmap = PortBitmap.of(parse_port_range("30000-30009"), [port])
            await store.commit([Change("ranges", "servicenodeports", 0, bitmap.draft())])
            for holder, given_back in (("demo/first", []), ("demo/second", [ADDRESSES, NODE_PORT_RECORDS, "ranges"])):
                reservation = Reservation()
                allocator.free_address(reservation, address, holder)
                allocator.free_port(reservation, port, holder)
                changes = [*reservation.changes, *allocator.record_ports(reservation)]
                assert [change.collection for change in changes] == given_back

    asyncio.run(scenario())


DUAL = "10.96.0.0/24,fd00:10:96::/112"


@pytest.mark.parametrize(
    ("ranges", "spec", "families"),
    [
        pytest.param("10.96.0.0/24", {}, ["IPv4"], id="single stack"),
        pytest.param(DUAL, {}, ["IPv4"], id="dual cluster, nothing asked"),
        pytest.param(DUAL, {"ipFamilyPolicy": "PreferDualStack"}, ["IPv4", "IPv6"], id="prefer"),
        pytest.param("10.96.0.0/24", {"ipFamilyPolicy": "PreferDualStack"}, ["IPv4"], id="prefer on single"),
        pytest.param(DUAL, {"ipFamilies": ["IPv6"]}, ["IPv6"], id="the second family"),
        pytest.param(
            DUAL, {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}, ["IPv6", "IPv4"], id="IPv6 first"
        ),
    ],
)
def test_a_service_gets_an_address_of_each_of_its_families(ranges: str, spec: Any, families: list[str]) -> None:
    (found,) = allocated(ranges, make_service(**spec))
    assert found["ipFamilies"] == families
    assert ["IPv6" if ":" in address else "IPv4" for address in found["clusterIPs"]] == families
    assert found["clusterIP"] == found["clusterIPs"][0]


@pytest.mark.parametrize(
    ("ranges", "spec", "field"),
    [
        ("10.96.0.0/24", {"ipFamilyPolicy": "RequireDualStack"}, "spec.ipFamilyPolicy"),
        ("10.96.0.0/24", {"ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]"),
        (DUAL, {"ipFamilies": ["IPv4", "IPv6"]}, "spec.ipFamilyPolicy"),
        ("10.96.0.0/24", {"clusterIP": "10.96.1.7"}, "spec.clusterIPs"),
        ("10.96.0.0/24", {"clusterIP": "10.96.0.255"}, "spec.clusterIPs"),
        (
            "10.96.0.0/24",
            {"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP", "nodePort": 80}]},
            "spec.ports[0].nodePort",
        ),
    ],
)
def test_an_unavailable_address_is_refused_by_field(ranges: str, spec: Any, field: str) -> None:
    with pytest.raises(AllocationRefused) as found:
        allocated(ranges, make_service(**spec))
    assert [error.field for error in found.value.errors] == [field]


def test_a_full_range_is_full_and_never_hands_out_an_address_twice() -> None:
    services = [make_service(f"s{number}") for number in range(6)]
    assert len({spec["clusterIP"] for spec in allocated("10.96.0.0/29", *services)}) == 6
    with pytest.raises(AllocationRefused, match="range is full"):
        allocated("10.96.0.0/29", *(make_service(f"s{number}") for number in range(7)))


def cidr(text: str, ready: str = "True") -> Any:
    return {"spec": {"cidrs": [text]}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def test_a_further_range_takes_over_when_the_first_is_full() -> None:
    services = [make_service(f"s{number}") for number in range(8)]
    found = allocated("10.96.0.0/29", *services, more=cidr("10.97.0.0/28"), six=cidr("fd00:10:97::/112"))
    assert ["10.96." in spec["clusterIP"] for spec in found] == [True] * 6 + [False] * 2
    assert all(spec["clusterIP"].startswith("10.97.0.") for spec in found[6:])


def test_an_address_of_a_further_range_can_be_asked_for() -> None:
    (found,) = allocated("10.96.0.0/24", make_service(clusterIP="10.97.0.9"), more=cidr("10.97.0.0/28"))
    assert found["clusterIP"] == "10.97.0.9"


@pytest.mark.parametrize(
    "further",
    [
        pytest.param({"kubernetes": cidr("10.97.0.0/28")}, id="the default one says nothing new"),
        pytest.param({"more": cidr("10.97.0.0/28", "False")}, id="not ready"),
        pytest.param(
            {"more": {**cidr("10.97.0.0/28"), "metadata": {"resourceVersion": "0", "deletionTimestamp": "x"}}},
            id="being deleted",
        ),
    ],
)
def test_a_range_that_does_not_serve_gives_no_address(further: Any) -> None:
    with pytest.raises(AllocationRefused, match="does not match the current range"):
        allocated("10.96.0.0/24", make_service(clusterIP="10.97.0.9"), **further)


def test_one_node_port_serves_two_protocols_of_one_port() -> None:
    ports = [{"name": p, "port": 53, "protocol": p, "targetPort": 53} for p in ("UDP", "TCP")]
    (found,) = allocated("10.96.0.0/24", make_service(type="NodePort", ports=ports))
    assert found["ports"][0]["nodePort"] == found["ports"][1]["nodePort"]


def test_a_local_load_balancer_gets_a_health_check_port() -> None:
    (found,) = allocated("10.96.0.0/24", make_service(type="LoadBalancer", externalTrafficPolicy="Local"))
    assert found["healthCheckNodePort"] != found["ports"][0]["nodePort"]


def test_headless_services_hold_no_address() -> None:
    picked = make_service("a", clusterIP="None", selector={"a": "b"})
    by_hand = make_service("b", clusterIP="None")
    selected, manual = allocated("10.96.0.0/24", picked, by_hand)
    assert (selected["clusterIPs"], selected["ipFamilyPolicy"]) == (["None"], "SingleStack")
    assert (manual["ipFamilyPolicy"], manual["ipFamilies"]) == ("RequireDualStack", ["IPv4", "IPv6"])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        pytest.param({"host": "0.0.0.0", "insecure": True}, "without TLS", id="open to all"),
        pytest.param({"host": "0.0.0.0"}, "advertise-address", id="which address"),
        pytest.param({"host": "example.com"}, "not an IP address", id="a name"),
        pytest.param({"service_ranges": "10.96.0.0/31"}, "at least 8", id="range"),
        pytest.param({"load_balancer_cidr": "10.96.1.0/24"}, "overlaps the service range", id="balancers"),
        pytest.param({"load_balancer_cidr": "x"}, "not a CIDR", id="balancers unreadable"),
    ],
)
def test_settings_that_must_not_be_are_refused_with_the_reason(settings: Any, why: str) -> None:
    with pytest.raises(SettingsRefused, match=why):
        check(ServerSettings(**settings))


def test_an_address_range_knows_its_family() -> None:
    assert [found.family for found in parse_service_ranges(DUAL)] == ["IPv4", "IPv6"]
    assert isinstance(parse_service_ranges("10.96.0.0/24")[0], AddressRange)
