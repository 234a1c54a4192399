"""What has no name, and that it is said and does no harm."""

import asyncio

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
)
from nodeagent.model.problem import Problem
from nodeagent.names.feed.feed_messages import Put, Remove
from nodeagent.names.feed.feeder import Feeder
from nodeagent.names.zone.service_names import names_of
from nodeagent.names.zone.unservable import faults_of
from tests.harness.dns.reference import RecordedObjects

LONG_PORT = "a" * 63
DEEP_ZONE = ".".join(["z" * 60] * 3) + ".example"


def service(name: str = "web", namespace: str = "shop", **fields: object) -> Service:
    spec = ServiceSpec(**{"cluster_ip": "10.96.0.1", "cluster_ips": ("10.96.0.1",), **fields})  # type: ignore[arg-type]
    return Service(ObjectMeta(name=name, namespace=namespace), spec)


def slice_of(*hosts: str, port: str = "") -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(name="web-x", namespace="shop"),
        address_type="IPv4",
        endpoints=tuple(Endpoint((f"10.0.0.{i}",), hostname=host or None) for i, host in enumerate(hosts, 1)),
        ports=(EndpointPort(name=port, port=80),),
    )


@pytest.mark.parametrize(
    ("one", "slices", "zones", "expected"),
    [
        pytest.param(service(), [slice_of("web-0", "")], ("cluster.local",), [], id="fine"),
        pytest.param(service("Web"), [], ("cluster.local",), ["NotADnsLabel"], id="upper case"),
        pytest.param(service("a.b"), [], ("cluster.local",), ["NotADnsLabel"], id="a dot"),
        pytest.param(service("w" * 64), [], ("cluster.local",), ["NotADnsLabel"], id="64 characters"),
        pytest.param(service(namespace="ä"), [], ("cluster.local",), ["NotADnsLabel"], id="namespace"),
        pytest.param(service("w" * 63), [], ("cluster.local", DEEP_ZONE), ["NameTooLong"], id="too long in one zone"),
        pytest.param(service(), [slice_of("h" * 63)], (DEEP_ZONE,), ["NameTooLong"], id="too long below it"),
        pytest.param(service(), [], (DEEP_ZONE,), [], id="just right"),
        pytest.param(
            service(ports=(ServicePort(80, LONG_PORT),)), [], ("cluster.local",), ["PortNameTooLong"], id="port"
        ),
        pytest.param(
            service(), [slice_of("", port=LONG_PORT)], ("cluster.local",), ["PortNameTooLong"], id="slice port"
        ),
        pytest.param(
            service(),
            [slice_of("a.b", "h" * 64, "Web-0")],
            ("cluster.local",),
            ["HostnameNotADnsLabel", "HostnameNotADnsLabel"],
            id="hostnames",
        ),
        *(
            pytest.param(
                service(type="ExternalName", external_name=target), [], ("cluster.local",), reasons, id=f"to {target!r}"
            )
            for target, reasons in (
                ("www.example.com.", []),
                ("192.0.2.1", ["ExternalNameIsAddress"]),
                ("2001:db8::1", ["ExternalNameIsAddress"]),
                ("a..b", ["BadExternalName"]),
                ("", ["BadExternalName"]),
            )
        ),
    ],
)
def test_services_without_a_possible_name_are_found(
    one: Service, slices: list[EndpointSlice], zones: tuple[str, ...], expected: list[str]
) -> None:
    assert [fault.reason for fault in faults_of(one, slices, names_of(one, slices), zones)] == expected


def test_an_endpoint_with_an_invalid_hostname_is_named_after_its_address() -> None:
    names = names_of(service(), [slice_of("a.b", "h" * 300, "Web-0", "")])
    assert [host for host, _ in names.groups[0].endpoints()] == ["10-0-0-1", "10-0-0-2", "web-0", "10-0-0-4"]


def test_a_service_without_names_is_left_out_and_a_problem_until_it_changes() -> None:
    objects = RecordedObjects()
    objects.services.clear()
    key = ObjectKey("shop", "web")
    said: list[tuple[Problem, ...]] = []

    async def scene() -> None:
        feeder = Feeder(objects, wall=lambda: 7, on_problems=said.append, zones=("cluster.local",))
        objects.services[key] = service()
        feeder.passed(None)
        reported = [message async for message in feeder.everything()]
        assert any(isinstance(message, Put) for message in reported)
        assert said == []
        changes = feeder.changes()
        objects.services[key] = service("web", "shop.x")
        feeder.passed({key})
        assert await anext(changes) == Remove((key,), 7)
        objects.services[key] = service(ports=(ServicePort(80, LONG_PORT),))
        feeder.passed({key})
        assert isinstance(await anext(changes), Put)
        del objects.services[key]
        feeder.passed({key})
        assert await anext(changes) == Remove((key,), 7)
        objects.services[key] = service()
        feeder.passed({key})
        assert isinstance(await anext(changes), Put)

    asyncio.run(scene())
    assert [[problem.reason for problem in problems] for problems in said] == [
        ["NotADnsLabel"],
        ["PortNameTooLong"],
        [],
    ]
    assert said[0][0].subject == "Service shop/web"
