"""When connections are followed through the rules of other programs, and what the agent keeps of that."""

import asyncio
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.connection_watch import (
    AGAIN_SECONDS,
    CREDIT_SECONDS,
    LOOK_SECONDS,
    RARELY_SECONDS,
    SERVICES,
    ConnectionWatch,
    sample,
)
from nodeagent.proxy.dataplane.followed_sample import STOPPED, FollowedSample
from nodeagent.proxy.dataplane.path_fingerprint import PathFingerprint
from nodeagent.proxy.dataplane.walk_rest import REST

FAULT = Problem("rules of other programs", STOPPED, "a policy")
COST_SECONDS = 0.5
WIDTHS = frozenset({("eth0", 1500)})


def service(number: int, *endpoints: str) -> ServiceState:
    key = ObjectKey("default", f"web-{number}")
    name = ServicePortName(key, "http", Protocol.TCP)
    route = Route(tuple(Backend(one, 80) for one in endpoints))
    frontend = Frontend(FrontendKind.CLUSTER_IP, Family.IPV4, f"10.96.0.{number}", Protocol.TCP, 80, name, route)
    return ServiceState(key, frontends=(frontend,))


class Node:
    """Following takes half a second of a processor. Time stands otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.states = {state.key: state for state in (service(1, "10.244.1.7"), service(2))}
        self.fingerprint = PathFingerprint(1, 1, WIDTHS)
        self.found: tuple[Problem, ...] = ()
        self.fails = False
        self.followed: list[Sequence[str]] = []
        self.reported: tuple[Problem, ...] = ()
        self.watch = ConnectionWatch(
            lambda: self.states, self._follow, self._report, lambda _: self.fingerprint, lambda: self.now
        )

    async def _follow(self, services: Sequence[str]) -> FollowedSample:
        self.followed.append(services)
        if self.fails:
            raise OSError("no process")
        return FollowedSample(self.found, COST_SECONDS)

    def _report(self, problems: Iterable[Problem]) -> None:
        self.reported = tuple(problems)

    def looks(self, after_seconds: float = LOOK_SECONDS) -> int:
        """How often connections were followed in one look."""
        self.now += after_seconds
        before = len(self.followed)
        asyncio.run(self.watch.look())
        return len(self.followed) - before


def test_connections_are_followed_once_and_again_after_a_change() -> None:
    node = Node()
    assert (node.looks(), node.looks()) == (1, 0)
    assert node.followed == [["default/web-1"]], "the other has no endpoint"
    node.fingerprint = PathFingerprint(2, 1, WIDTHS)
    assert node.looks() == 0, "the agent changed its own table"
    node.fingerprint = PathFingerprint(3, 2, WIDTHS)
    assert (node.looks(), node.looks()) == (1, 0)
    node.fingerprint = PathFingerprint(3, 2, frozenset({("eth0", 1400)}))
    assert (node.looks(), node.looks()) == (1, 0)


def test_a_problem_is_reported_and_looked_at_until_it_is_gone() -> None:
    node = Node()
    node.found = (FAULT,)
    node.looks()
    assert (node.reported, node.watch.count(STOPPED)) == ((FAULT,), 1)
    node.found = ()
    assert node.looks() == 0
    assert node.looks(AGAIN_SECONDS) == 1
    assert (node.reported, node.watch.count(STOPPED)) == ((), 0)
    assert node.looks(AGAIN_SECONDS) == 0
    assert node.looks(RARELY_SECONDS) == 1


def test_constant_changes_cost_one_percent_of_a_core() -> None:
    node, times = Node(), 1000
    for number in range(times):
        node.fingerprint = PathFingerprint(number, number, WIDTHS)
        node.looks()
    spent, most = len(node.followed) * COST_SECONDS, (times * LOOK_SECONDS + CREDIT_SECONDS) / REST
    assert 0.9 * most < spent <= most + COST_SECONDS


def test_a_failed_read_changes_nothing_and_is_retried() -> None:
    node = Node()
    node.found = (FAULT,)
    node.looks()
    node.fails = True
    node.fingerprint = PathFingerprint(2, 2, WIDTHS)
    assert (node.looks(), node.looks()) == (1, 1)
    assert (node.reported, node.watch.count(STOPPED)) == ((FAULT,), 1)


def test_a_node_without_endpoints_has_nothing_to_follow() -> None:
    node = Node()
    node.states = {}
    assert node.looks() == 0


def test_a_sample_is_spread_over_all_services() -> None:
    states = {state.key: state for state in (service(number, "10.244.1.7") for number in range(1, 101))}
    chosen = sample(states)
    assert 0.5 * SERVICES < len(chosen) <= SERVICES
    assert (chosen[0], chosen[-1] > "default/web-8") == ("default/web-1", True)


def test_a_sample_has_services_with_endpoints_only() -> None:
    states = {state.key: state for state in (service(number) for number in range(1, 101))}
    states |= {state.key: state for state in (service(number, "10.244.1.7") for number in (30, 50, 51))}
    assert sample(states) == ["default/web-30", "default/web-50", "default/web-51"]


def test_a_thread_may_add_services_meanwhile() -> None:
    class Growing(tuple[Backend, ...]):
        __slots__ = ()

        def __len__(self) -> int:
            state = service(len(states) + 1, "10.244.1.7")
            states[state.key] = state
            return 1

    states = {state.key: state for state in (service(1, "10.244.1.7"), service(2, "10.244.1.8"))}
    first = next(iter(states.values()))
    frontend = replace(first.frontends[0], route=Route(Growing()))
    states[first.key] = replace(first, frontends=(frontend,))
    assert sample(states) == ["default/web-1", "default/web-2"]
