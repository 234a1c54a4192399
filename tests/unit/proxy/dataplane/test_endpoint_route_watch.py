"""Which endpoints the agent looks at, and when a way that is lost is a problem."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane import endpoint_route_watch
from nodeagent.proxy.dataplane.endpoint_route_watch import MOST, STEP, EndpointRouteWatch
from nodeagent.proxy.dataplane.endpoint_routes import EndpointWays

HERE = Backend("10.244.1.10", 8080, local=True)
THERE = tuple(Backend(f"10.244.2.{number}", 8080) for number in range(10, 14))


def state(name: str, *backends: Backend) -> ServiceState:
    key = ObjectKey("default", name)
    port = ServicePortName(key, "http", Protocol.TCP)
    place = Frontend(FrontendKind.CLUSTER_IP, Family.IPV4, "10.96.0.1", Protocol.TCP, 80, port, Route(backends))
    return ServiceState(key, frontends=(place,))


class Node:
    """lost: addresses that it has no way to. asked: what was looked at, look by look."""

    def __init__(self, *states: ServiceState) -> None:
        self.states = {one.key: one for one in states}
        self.lost: set[str] = set()
        self.asked: list[list[str]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.watch = EndpointRouteWatch(lambda: self.states, self.read, self.pause, lambda: 0.0)

    def read(self, endpoints: Iterable[Backend]) -> EndpointWays:
        asked = list(endpoints)
        self.asked.append([one.address for one in asked])
        return EndpointWays({one: "no route leads there" for one in asked if one.address in self.lost})

    async def pause(self, seconds: float) -> None:
        assert seconds
        self.meanwhile()

    def look(self) -> list[str]:
        """The details of the problems after a look."""
        asyncio.run(self.watch.look())
        return [one.detail for one in self.watch.problems()]


def test_of_others_one_of_each_range_is_asked_for_and_another_one_the_next_time() -> None:
    node = Node(state("web", HERE, *THERE))
    assert node.look() == node.look() == []
    first, second = (set(asked) for asked in node.asked)
    assert HERE.address in first & second
    assert len(first) == len(second) == 2
    assert first != second


def test_a_way_that_is_lost_is_a_problem_until_it_is_there() -> None:
    node = Node(state("web", *THERE[:1]))
    node.lost = {THERE[0].address}
    assert node.look() == [
        "this node has no way to endpoint 10.244.2.10: no route leads there; see ip route get 10.244.2.10"
    ]
    assert [one.subject for one in node.watch.problems()] == ["routes to endpoints"]
    node.lost = set()
    assert node.look() == []


def test_an_endpoint_that_is_removed_meanwhile_does_not_count() -> None:
    node = Node(state("web", *THERE[:1]))
    node.lost = {THERE[0].address}
    node.meanwhile = node.states.clear
    assert node.look() == []
    assert node.asked == [[THERE[0].address]]
    assert not node.states


@pytest.mark.parametrize("count", [1, 3000])
def test_many_services_are_looked_at_in_turn_and_what_is_lost_each_time(count: int) -> None:
    node = Node(*(state(f"s{number}", Backend(f"10.{number >> 8}.{number & 255}.1", 80)) for number in range(count)))
    looks = -(-count // MOST) + 1
    for _ in range(looks):
        node.look()
    assert max(map(len, node.asked)) <= MOST
    last = count - 1
    node.lost = {f"10.{last >> 8}.{last & 255}.1"}
    found = [bool(node.look()) for _ in range(2 * looks)]
    assert any(found)
    assert all(found[found.index(True) :])


class Steps:
    """Runs a look. compared: how many endpoints each step of it compared: another task has its turn between two of them."""

    def __init__(self) -> None:
        self.compared = Counter[int]()
        self._step = 0

    def count(self) -> None:
        self.compared[self._step] += 1

    async def run(self, look: Callable[[], Coroutine[None, None, None]]) -> None:
        looking = asyncio.create_task(look())
        while not looking.done():
            self._step += 1
            await asyncio.sleep(0)
        await looking


@pytest.mark.parametrize(("services", "endpoints"), [(250, 40), (2, 12_000)])
def test_no_step_of_the_loop_compares_more_than_its_number_of_endpoints(
    monkeypatch: pytest.MonkeyPatch, services: int, endpoints: int
) -> None:
    steps, range_of = Steps(), endpoint_route_watch._range

    def counted(one: Backend) -> tuple[object, ...]:
        steps.count()
        return range_of(one)

    monkeypatch.setattr(endpoint_route_watch, "_range", counted)
    backends = [Backend(f"10.244.{number >> 8 & 3}.{number & 255}", 8000 + number) for number in range(endpoints)]
    node = Node(*(state(f"s{number}", *backends) for number in range(services)))

    asyncio.run(steps.run(node.watch.look))

    assert max(steps.compared.values()) <= STEP
    assert steps.compared.total() > 5 * STEP


def test_a_lost_route_is_looked_for_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, backends_of = Steps(), endpoint_route_watch._backends

    def counted(of: ServiceState) -> Iterator[Backend]:
        for one in backends_of(of):
            steps.count()
            yield one

    backends = [Backend(f"10.244.2.{number & 255}", 8000 + number, local=True) for number in range(12_000)]
    node = Node(state("web", *backends))
    node.lost = {one.address for one in backends}
    node.meanwhile = lambda: monkeypatch.setattr(endpoint_route_watch, "_backends", counted)

    asyncio.run(steps.run(node.watch.look))

    assert node.asked[0] == node.asked[1] != []
    assert max(steps.compared.values()) <= STEP
    assert steps.compared.total() == len(backends)
