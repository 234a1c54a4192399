"""A table that is read while the first lists are on their way: the first pass believes it as long as nobody changes a ruleset."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.early_reading import EarlyReading, read_early
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import KernelUnclear
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETSETELEM

pytestmark = [pytest.mark.kernel, pytest.mark.calm_kernel]

OPTIONS = {family: ProgramOptions(PodDetection.CIDR) for family in Family}
OWNERSHIPS = pytest.mark.parametrize("ownership", list(Ownership), ids=lambda each: each.value)
SECOND = "10.96.0.10 . tcp . 80 . 1"


class CountingSocket(Ruleset):
    """Counts how often a set is read as a whole."""

    dumps = 0

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[memoryview]:
        self.dumps += kind == NFT_MSG_GETSETELEM
        return super().dump(kind, family, body)


@pytest.fixture
def socket(kernel: Any) -> Iterator[CountingSocket]:
    made: CountingSocket = kernel.run(CountingSocket)
    yield made
    made.close()


@pytest.fixture
def web(service: Callable[..., ServiceState]) -> ServiceState:
    return service("web", "10.96.0.10", "10.244.1.1", "10.244.2.2")


def early(kernel: Any, socket: Ruleset) -> EarlyReading:
    found: dict[Family, EarlyReading] = kernel.run(lambda: read_early(socket, OPTIONS))
    return found[Family.IPV4]


@OWNERSHIPS
def test_the_first_pass_reads_nothing_again(
    kernel: Any, socket: CountingSocket, web: ServiceState, ownership: Ownership
) -> None:
    former = kernel.start(ownership)
    former.sync(web)
    former.die()
    agent = kernel.start(ownership, socket=socket, early=early(kernel, socket))
    socket.dumps = 0
    report = agent.sync(web)
    assert socket.dumps == 0
    assert report.read_back
    assert report.touched == 0


@OWNERSHIPS
def test_a_change_of_another_process_meanwhile_is_seen_and_repaired(
    kernel: Any, socket: CountingSocket, web: ServiceState, ownership: Ownership
) -> None:
    former = kernel.start(ownership)
    former.sync(web)
    wanted = kernel.image()
    former.die()
    reading = early(kernel, socket)
    kernel.nft(f"delete element ip nodeagent backends {{ {SECOND} }}")
    agent = kernel.start(ownership, socket=socket, early=reading)
    assert agent.sync(web).touched == 1
    assert kernel.image() == wanted


def test_a_late_change_of_the_former_agent_is_seen(
    kernel: Any, socket: CountingSocket, web: ServiceState, service: Callable[..., ServiceState]
) -> None:
    former = kernel.start()
    former.sync(web)
    reading = early(kernel, socket)
    former.sync(service("other", "10.96.0.11", "10.244.1.1"))
    former.die()
    agent = kernel.start(socket=socket, early=reading)
    agent.sync(web)
    assert len(kernel.elements(schema.FRONTENDS)) == 1


def test_where_there_is_no_table_one_is_made(kernel: Any, socket: CountingSocket, web: ServiceState) -> None:
    reading = early(kernel, socket)
    assert reading.contents is None
    agent = kernel.start(socket=socket, early=reading)
    agent.sync(web)
    assert len(kernel.elements(schema.BACKENDS)) == 2


def test_only_the_first_pass_believes_it(kernel: Any, socket: CountingSocket, web: ServiceState) -> None:
    agent = kernel.start(socket=socket, early=early(kernel, socket))
    agent.sync(web)
    agent.driver.forget()
    assert agent.sync(web).touched == 0
    assert len(kernel.elements(schema.BACKENDS)) == 2


def test_a_table_that_cannot_be_read_now_is_left_to_the_first_pass(
    kernel: Any, socket: CountingSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Ruleset) -> int:
        raise KernelUnclear("no answer")

    monkeypatch.setattr(Ruleset, "generation", refuse)
    assert kernel.run(lambda: read_early(socket, OPTIONS)) == {}
