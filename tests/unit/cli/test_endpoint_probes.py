"""How many endpoints are tried, how many at a time, and that the answer says so."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodeagent.cli import endpoint_probes
from nodeagent.cli.endpoint_probes import AT_ONCE, MOST, MOST_OF_ALL, probe_endpoints, probe_services
from nodeagent.diagnosis.explain.kernel import Probe, ProbeResult
from nodeagent.diagnosis.explain.service import explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator
from tests.harness.objects import make_service, make_slices, service_port
from tests.unit.diagnosis.explain.test_verdicts import World

MANY = 800


def state(name: str, *backends: Backend) -> ServiceState:
    key = ObjectKey("default", name)
    port = ServicePortName(key, "http", Protocol.TCP)
    place = Frontend(FrontendKind.CLUSTER_IP, Family.IPV4, "10.96.0.1", Protocol.TCP, 80, port, Route(backends))
    return ServiceState(key, frontends=(place,))


@contextmanager
def server() -> Iterator[tuple[int, list[str]]]:
    """A port that accepts on all addresses of loopback, and the addresses at which it was connected to."""
    met: list[str] = []
    with socket.create_server(("0.0.0.0", 0), backlog=MANY) as listener:
        listener.settimeout(0.5)

        def accept() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    met.append(connection.getsockname()[0])
                    connection.close()
            except TimeoutError:
                return

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield listener.getsockname()[1], met
        accepting.join()


def test_of_a_service_with_many_endpoints_some_are_tried_evenly_spread() -> None:
    addresses = [f"127.1.{number >> 8}.{number & 255}" for number in range(MANY)]
    with server() as (port, met):
        found = probe_endpoints(state("web", *(Backend(one, port) for one in addresses)), ["http"])

    assert [one.answer for one in found] == [ProbeResult.ACCEPTED] * MOST
    assert sorted(met) == sorted(addresses)[:: MANY // MOST]


@pytest.mark.parametrize(("services", "endpoints"), [(1, MANY), (40, MANY), (10_000, 10)])
def test_connections_are_bounded_in_all_and_at_a_time(
    monkeypatch: pytest.MonkeyPatch, services: int, endpoints: int
) -> None:
    open_now, most, made = 0, 0, 0

    async def silent(backend: Backend) -> Probe:
        nonlocal open_now, most, made
        open_now, made = open_now + 1, made + 1
        most = max(most, open_now)
        await asyncio.sleep(0.01)
        open_now -= 1
        return Probe(backend.address, ProbeResult.ACCEPTED)

    monkeypatch.setattr(endpoint_probes, "_probe", silent)
    backends = [Backend(f"10.0.{number >> 8}.{number & 255}", 80) for number in range(endpoints)]
    states = {one.key: one for one in (state(f"s{number}", *backends) for number in range(services))}

    found = probe_services(states)

    assert made == sum(map(len, found.values())) == min(services * MOST, MOST_OF_ALL)
    assert most == min(made, AT_ONCE)
    waits = -(-made // AT_ONCE)
    assert waits * endpoint_probes.SECONDS <= 2.0, "the longest that endpoints which are all silent take"


@pytest.mark.parametrize(("tried", "said"), [(MOST, ", 16 of them were tried"), (MANY, "")])
def test_the_verdict_says_how_many_of_the_endpoints_were_tried(tried: int, said: str) -> None:
    service = make_service("web", "10.96.0.1", ports=(service_port(80, name="http"),))
    addresses = [f"10.244.{number >> 8}.{number & 255}" for number in range(1, MANY + 1)]
    slices = make_slices(service, [((one,), "node-b") for one in addresses], target_port=8080)
    context = Context(node_name="node-a")
    translator = Translator()
    translator.update(World(service, *slices), None, context)
    key = ObjectKey("default", "web")
    probes = [Probe(f"{one}:8080", ProbeResult.ACCEPTED) for one in addresses[:tried]]
    facts = ServiceFacts(service=service, slices=slices, context=context, state=translator.states[key], probes=probes)

    assert explain_service(facts).verdict == f"healthy: {MANY} of {MANY} endpoints used{said}"
