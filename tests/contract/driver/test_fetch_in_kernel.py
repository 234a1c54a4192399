"""Of a big table the endpoints are asked for by key: the same as a dump, and a dump when the keys are not all there is."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.diagnosis.tables.inspection import programmed_frontends
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import Backend, Route, ServiceState
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.image.render import endpoint_lists, programmed_keys
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.schema import set_specs
from nodeagent.wire.netlink.equal_answers import EqualAnswers
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETSETELEM

pytestmark = pytest.mark.kernel

SPECS = {spec.name: spec for spec in set_specs(counters=True)}
KEY = "10.96.0.10 . tcp . 80"


class WatchedSocket(Ruleset):
    """Remembers which sets were dumped and how many elements were fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.dumped: list[bytes] = []
        self.fetched = 0
        self.one_by_one = False

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[memoryview]:
        if kind == NFT_MSG_GETSETELEM:
            self.dumped.append(body)
        return super().dump(kind, family, body)

    def fetch(self, kind: int, family: int, body: bytes) -> Iterator[memoryview]:
        for element in super().fetch(kind, family, body):
            self.fetched += 1
            yield element

    def fetch_equal(self, kind: int, family: int, body: bytes, count: int, answers: EqualAnswers) -> memoryview | None:
        found = None if self.one_by_one else super().fetch_equal(kind, family, body, count, answers)
        self.fetched += 0 if found is None else count
        return found

    def has_dumped(self, name: str) -> bool:
        return any(body.endswith(name.encode() + b"\0" * (4 - len(name) % 4)) for body in self.dumped)


@pytest.fixture
def socket(kernel: Any) -> Iterator[WatchedSocket]:
    made: WatchedSocket = kernel.run(WatchedSocket)
    yield made
    made.close()


@pytest.fixture
def states(service: Callable[..., ServiceState]) -> list[ServiceState]:
    """More endpoints than fit one request, node ports, a list for the cluster that differs, and one with nobody."""
    many = [f"10.244.{at >> 8}.{at & 255}" for at in range(256, 956)]
    local = service("local", "10.96.0.12", "10.244.1.1", "10.244.2.2", node_port=30081)
    narrow = Route((Backend("10.244.1.1", 8080, local=True),))
    return [
        service("many", "10.96.0.11", *many),
        service("web", "10.96.0.10", "10.244.1.1", "10.244.2.2", affinity=60, node_port=30080),
        replace(local, frontends=tuple(replace(each, short_circuit=narrow) for each in local.frontends)),
        service("nobody", "10.96.0.13"),
    ]


def read(kernel: Any, socket: WatchedSocket) -> Contents:
    table = KernelTable(socket, Family.IPV4, SPECS, fetch_above=0)
    found: Contents = kernel.run(table.read)
    return found


@pytest.mark.parametrize("one_by_one", [False, True], ids=["side by side", "one by one"])
@pytest.mark.parametrize("counted", [False, True], ids=["plain endpoints", "counted endpoints"])
def test_fetched_elements_equal_a_dump(
    kernel: Any, socket: WatchedSocket, states: list[ServiceState], *, one_by_one: bool, counted: bool
) -> None:
    options = ProgramOptions(PodDetection.CIDR, endpoint_counters=counted)
    kernel.start(options=options).sync(*states)
    socket.one_by_one = one_by_one
    found = kernel.run(KernelTable(socket, Family.IPV4, options.specs(), fetch_above=0).read)
    assert socket.fetched == 700 + 2 * 2 + 2 * (2 + 1)
    assert not socket.has_dumped(schema.BACKENDS)
    assert not socket.has_dumped(schema.NODEPORT_BACKENDS)
    assert socket.has_dumped(schema.FRONTENDS)
    assert (schema.BACKENDS in found.counters) == counted
    dumped: Contents = kernel.run(KernelTable(socket, Family.IPV4, options.specs()).read)
    assert found == dumped
    assert socket.has_dumped(schema.BACKENDS)
    for name in (schema.BACKENDS, schema.NODEPORT_BACKENDS):
        in_order = {key: dumped.image[name][key] for key in programmed_keys(dumped.image, name)}
        assert endpoint_lists(dumped.image, name, in_order).items() <= found.lists.items()
    assert sorted(map(len, found.lists.values())) == [1, 1, 2, 2, 2, 2, 700]


def read_only(kernel: Any, socket: WatchedSocket, name: str) -> Contents:
    table = KernelTable(socket, Family.IPV4, SPECS, only=(name,))
    found: Contents = kernel.run(table.read)
    return found


@pytest.mark.parametrize(
    ("name", "endpoints"),
    [("default/web", 2 * 2), ("default/many", 700), ("default/local", 2 * (2 + 1)), ("default/nobody", 0), ("a/b", 0)],
)
def test_of_one_service_its_own_endpoints_are_asked_for(
    kernel: Any, socket: WatchedSocket, states: list[ServiceState], name: str, endpoints: int
) -> None:
    kernel.start().sync(*states)
    whole, found = kernel.contents(), read_only(kernel, socket, name)
    assert socket.fetched == endpoints
    assert not socket.has_dumped(schema.BACKENDS)
    assert not socket.has_dumped(schema.NODEPORT_BACKENDS)
    for one in (schema.BACKENDS, schema.NODEPORT_BACKENDS):
        assert found.image[one].items() <= whole.image[one].items()
    assert {key: value for key, value in found.image.items() if "backends" not in key} == {
        key: value for key, value in whole.image.items() if "backends" not in key
    }
    own = [one for one in programmed_frontends(whole, Family.IPV4) if one.service.partition(":")[0] == name]
    assert list(programmed_frontends(found, Family.IPV4, name)) == own
    assert bool(own) == (name != "a/b")


def test_of_one_service_that_lacks_an_endpoint_all_is_read(
    kernel: Any, socket: WatchedSocket, states: list[ServiceState]
) -> None:
    kernel.start().sync(*states)
    kernel.nft(f"delete element ip nodeagent backends {{ {KEY} . 1 }}")
    found = read_only(kernel, socket, "default/web")
    assert socket.has_dumped(schema.BACKENDS)
    assert found.image[schema.BACKENDS] == kernel.contents().image[schema.BACKENDS]


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(f"delete element ip nodeagent backends {{ {KEY} . 1 }}", id="an endpoint less"),
        pytest.param(f"add element ip nodeagent backends {{ {KEY} . 9 : 10.9.9.9 . 1 }}", id="an endpoint more"),
        pytest.param("delete element ip nodeagent frontends { 10.96.0.11 . tcp . 80 }", id="a frontend less"),
        pytest.param("flush map ip nodeagent backends", id="none at all"),
    ],
)
def test_a_change_of_another_process_is_seen(
    kernel: Any, socket: WatchedSocket, states: list[ServiceState], edit: str
) -> None:
    kernel.start().sync(*states)
    kernel.nft(edit)
    assert read(kernel, socket) == kernel.contents()
    assert socket.has_dumped(schema.BACKENDS)
