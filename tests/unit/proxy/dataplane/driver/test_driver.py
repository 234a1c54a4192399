"""What the driver keeps when something fails, over a kernel that answers by a script (the real one: tests/contract/driver)."""

import asyncio
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.reports import DriftReport, PurgeReport
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import KernelUnclear, NotPermitted
from nodeagent.proxy.dataplane.program.chain import ProgramOptions

KEY = ObjectKey("default", "web")


def service(key: ObjectKey, cluster_ip: str, *endpoints: str) -> ServiceState:
    return ServiceState(
        key,
        cluster_ips=(cluster_ip,),
        frontends=(
            Frontend(
                FrontendKind.CLUSTER_IP,
                Family.IPV4,
                cluster_ip,
                Protocol.TCP,
                80,
                ServicePortName(key, "http", Protocol.TCP),
                Route(tuple(Backend(endpoint, 8080) for endpoint in endpoints)),
            ),
        ),
    )


WEB = service(KEY, "10.96.0.1", "10.244.0.1")


class EmptyKernel:
    """Has no table. Raises what it is given, one at a time: on a look, or on a commit."""

    def __init__(self, *, looks: tuple[Exception, ...] = (), commits: tuple[Exception, ...] = ()) -> None:
        self._looks, self._commits = list(looks), list(commits)
        self.committed: list[Transaction] = []
        self.committed_by: list[threading.Thread] = []

    def get(self, kind: int, family: int, body: bytes) -> memoryview:
        raise self._looks.pop(0) if self._looks else FileNotFoundError

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[tuple[int, memoryview]]:
        return iter(())

    def commit(self, transaction: Transaction, generation: int | None = None) -> list[bytes]:
        if transaction.empty:
            return []
        if self._commits:
            raise self._commits.pop(0)
        self.committed.append(transaction)
        self.committed_by.append(threading.current_thread())
        return []

    def generation(self) -> int:
        return 1


class Silent:
    def affinity_purged(self, report: PurgeReport) -> None: ...
    def drift_found(self, report: DriftReport) -> None: ...


def driver_of(kernel: EmptyKernel) -> TableDriver:
    return TableDriver(Family.IPV4, cast("Ruleset", kernel), ProgramOptions(), Ownership.OWNED, Silent())


def writes_frontend(transaction: Transaction) -> bool:
    return any(message.set == "frontends" for message in transaction.messages)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(EmptyKernel(looks=(KernelUnclear("no consistent dump"),)), id="the look fails"),
        pytest.param(EmptyKernel(commits=(KernelUnclear("no answer"),)), id="the commit is not answered"),
        pytest.param(EmptyKernel(commits=(NotPermitted("owned by another"),)), id="the commit is forbidden"),
    ],
)
def test_changes_of_a_failed_pass_are_programmed_by_the_next(kernel: EmptyKernel) -> None:
    driver = driver_of(kernel)
    with pytest.raises((KernelUnclear, NotPermitted)):
        asyncio.run(driver.sync({KEY: WEB}, NodeState()))
    assert not kernel.committed

    asyncio.run(driver.sync({}, NodeState()))

    assert writes_frontend(kernel.committed[0])


def test_changes_of_a_failed_pass_are_not_written_twice() -> None:
    kernel = EmptyKernel(commits=(KernelUnclear("no answer"),))
    driver = driver_of(kernel)
    with pytest.raises(KernelUnclear):
        asyncio.run(driver.sync({KEY: WEB}, NodeState()))
    asyncio.run(driver.sync({KEY: None}, NodeState()))

    assert not writes_frontend(kernel.committed[0])


def test_a_number_of_endpoints_that_is_new_to_the_table_is_committed_beside_the_loop() -> None:
    """The kernel then looks at every endpoint of the table, whatever else the transaction does."""
    kernel = EmptyKernel()
    driver = driver_of(kernel)
    one, two = ("10.244.0.1",), ("10.244.0.1", "10.244.0.2")

    async def story() -> list[bool]:
        on_the_loop = []
        for number, endpoints in enumerate((one, two, one, two), 1):
            key = ObjectKey("default", f"web-{number}")
            await driver.sync({key: service(key, f"10.96.0.{number}", *endpoints)}, NodeState())
            on_the_loop.append(kernel.committed_by[-1] is threading.current_thread())
        return on_the_loop

    _, new_number, *known_numbers = asyncio.run(story())

    assert not new_number
    assert all(known_numbers)
