"""docs/semantics.md 17 and docs/decisions/0011-address-conflicts.md: two Services claim one address."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from nodeagent.model.frontend import Frontend, FrontendKind, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service, key_of
from nodeagent.proxy.translate.conflicts import Claims
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service

ServiceBuilder = Callable[..., Service]

OLD, YOUNG = "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"


class Services:
    """Services entered one after the other into one index of claims."""

    def __init__(self, context: Context, services: Iterable[Service]) -> None:
        self._context = context
        self._claims = Claims()
        self.states: dict[str, ServiceState] = {}
        for service in services:
            self.put(service)

    def put(self, service: Service) -> set[str]:
        """Enters a service; returns the names of the others that must look again."""
        state = translate_service(service, [], self._context)
        self.states[state.key.name] = state
        return {key.name for key in self._claims.update(state.key, state)}

    def remove(self, name: str) -> set[str]:
        return {key.name for key in self._claims.update(self.states.pop(name).key, None)}

    def resolved(self, name: str) -> ServiceState:
        return self._claims.resolve(self.states[name])

    def owner(self, address: str | None, port: int = 80) -> list[str]:
        """The names of the services that have a frontend there."""
        return [
            name
            for name in sorted(self.states)
            if any(self._is_at(frontend, address, port) for frontend in self.resolved(name).frontends)
        ]

    @staticmethod
    def _is_at(frontend: Frontend, address: str | None, port: int) -> bool:
        return (frontend.address, frontend.port) == (address, port)


def external(service: ServiceBuilder, name: str, cluster_ip: str, created: str | None = None, **spec: Any) -> Service:
    """A service that claims 192.0.2.1 besides its cluster IP."""
    return service(name, clusterIP=cluster_ip, created=created, externalIPs=["192.0.2.1"], **spec)


@pytest.mark.parametrize(
    ("a", "b", "winner"),
    [
        pytest.param(OLD, YOUNG, "a", id="17-older-a"),
        pytest.param(YOUNG, OLD, "b", id="17-older-b"),
        pytest.param(OLD, OLD, "a", id="17-same-age-by-name"),
        pytest.param(None, OLD, "b", id="17-no-timestamp-is-youngest"),
        pytest.param(None, None, "a", id="17-neither-has-a-timestamp"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_older_service_has_the_address_and_the_other_is_reported(
    a: str | None, b: str | None, winner: str, reverse: bool, service: ServiceBuilder, context: Context
) -> None:
    both = [external(service, "a", "10.96.0.1", a), external(service, "b", "10.96.0.2", b)]
    services = Services(context, both[::-1] if reverse else both)
    loser = "b" if winner == "a" else "a"
    assert services.owner("192.0.2.1") == [winner]
    assert services.resolved(winner).problems == ()
    (problem,) = services.resolved(loser).problems
    assert (problem.subject, problem.reason) == (f"Service default/{loser}", "AddressConflict")
    assert f"Service default/{winner}" in problem.detail
    assert [frontend.kind for frontend in services.resolved(loser).frontends] == [FrontendKind.CLUSTER_IP]


def test_17_one_address_on_different_ports_is_no_conflict(service: ServiceBuilder, context: Context) -> None:
    services = Services(
        context,
        [
            service("a", clusterIP="10.96.0.1", ingress=["1.2.3.4"]),
            service("b", clusterIP="10.96.0.2", ingress=["1.2.3.4"], ports=[{"port": 443}]),
            service("c", clusterIP="10.96.0.3", ingress=["1.2.3.4"], ports=[{"port": 80, "protocol": "UDP"}]),
        ],
    )
    assert all(services.resolved(name) is services.states[name] for name in "abc")


def test_a_node_port_has_one_owner_in_each_family(service: ServiceBuilder, context: Context) -> None:
    ports = [{"port": 80, "nodePort": 30080}]
    services = Services(
        context,
        [
            service("a", clusterIP="10.96.0.1", ports=ports, created=OLD),
            service("b", clusterIP="10.96.0.2", ports=ports, created=YOUNG),
            service("c", clusterIP="fd00:96::3", ports=ports, created=YOUNG),
        ],
    )
    assert services.owner(None, 30080) == ["a", "c"]


@pytest.mark.parametrize("port", [pytest.param(80, id="a-port-it-serves"), pytest.param(443, id="a-port-it-does-not")])
@pytest.mark.parametrize("field", ["externalIPs", "ingress"])
def test_a_cluster_ip_cannot_be_taken_by_an_older_service_as_another_kind_of_address(
    port: int, field: str, service: ServiceBuilder, context: Context
) -> None:
    thief = service("a", clusterIP="10.96.0.1", created=OLD, ports=[{"port": port}], **{field: ["10.96.0.2"]})
    services = Services(context, [thief, service("b", clusterIP="10.96.0.2", created=YOUNG)])
    assert services.owner("10.96.0.2", port) == (["b"] if port == 80 else [])
    assert [problem.reason for problem in services.resolved("a").problems] == ["AddressConflict"]
    assert services.resolved("b").problems == ()


def test_two_owners_of_one_cluster_ip_share_it_by_port(service: ServiceBuilder, context: Context) -> None:
    services = Services(
        context,
        [
            service("a", created=OLD, ports=[{"port": 80}]),
            service("b", created=YOUNG, ports=[{"name": "x", "port": 80}, {"name": "y", "port": 443}]),
        ],
    )
    assert (services.owner("10.96.0.10", 80), services.owner("10.96.0.10", 443)) == (["a"], ["b"])


def test_when_the_winner_goes_the_loser_comes_back(service: ServiceBuilder, context: Context) -> None:
    services = Services(context, [external(service, "a", "10.96.0.1", OLD), external(service, "b", "10.96.0.2", YOUNG)])
    assert services.remove("a") == {"b"}
    assert services.owner("192.0.2.1") == ["b"]
    assert services.resolved("b") is services.states["b"]


def test_when_the_cluster_ip_goes_the_claim_on_it_comes_back(service: ServiceBuilder, context: Context) -> None:
    services = Services(
        context,
        [service("a", clusterIP="10.96.0.1", externalIPs=["10.96.0.2"]), service("b", clusterIP="10.96.0.2", ports=[])],
    )
    assert services.owner("10.96.0.2") == []
    assert services.remove("b") == {"a"}
    assert services.owner("10.96.0.2") == ["a"]


def test_only_services_that_share_an_address_look_again(service: ServiceBuilder, context: Context) -> None:
    services = Services(context, [service(f"s{n}", clusterIP=f"10.96.1.{n}") for n in range(50)])
    assert services.put(external(service, "a", "10.96.0.1", YOUNG)) == set()
    assert services.put(external(service, "b", "10.96.0.2", OLD)) == {"a"}
    assert services.put(external(service, "b", "10.96.0.2", OLD, sessionAffinity="ClientIP")) == set()
    assert services.put(service("b", clusterIP="10.96.0.2", created=OLD)) == {"a"}


def test_66_flows_to_a_lost_address_are_judged_by_the_service_that_has_it(
    service: ServiceBuilder, context: Context
) -> None:
    udp = [{"port": 53, "protocol": "UDP", "nodePort": 30053}]
    services = Services(
        context,
        [
            external(service, "a", "10.96.0.1", OLD, ports=udp),
            external(service, "b", "10.96.0.2", YOUNG, ports=udp),
            service("c", clusterIP="10.96.0.1", created=YOUNG, ports=[{"port": 53, "protocol": "UDP"}]),
        ],
    )
    (kept,) = services.resolved("b").udp_ports
    assert (kept.addresses, kept.port, kept.node_port) == (("10.96.0.2",), 53, 0)
    assert services.resolved("c").udp_ports == ()


def test_a_service_unknown_to_the_index_can_be_removed(context: Context) -> None:
    assert Claims().update(ObjectKey("default", "never-seen"), None) == set()


def test_the_key_of_a_state_is_the_key_of_its_service(service: ServiceBuilder, context: Context) -> None:
    some = service("x")
    assert translate_service(some, [], context).key == key_of(some)
