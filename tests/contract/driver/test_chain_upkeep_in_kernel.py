"""Chains that nothing leads to go, except spare ones; how many there are is bounded; what clients learned lives on."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.chain_upkeep import LOOK_SECONDS, MANY
from nodeagent.proxy.dataplane.driver.spare_classes import SPARE_FROM
from nodeagent.proxy.dataplane.image.timeouts import EXACT, rounded_up
from nodeagent.proxy.dataplane.program import schema
from tests.contract.driver.test_driver_in_kernel import learn

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
VIP = {Family.IPV4: "10.96.0.10", Family.IPV6: "fd00:10:96::10"}
POD = {Family.IPV4: "10.244.2.", Family.IPV6: "fd00:244:2::"}


def pods(family: Family, count: int) -> Iterable[str]:
    return [f"{POD[family]}{number}" for number in range(2, 2 + count)]


def numbered(service: MakeService, family: Family, number: int, endpoints: int = 8) -> ServiceState:
    vip = f"10.96.{number >> 8}.{number & 255}" if family is Family.IPV4 else f"fd00:10:96::{number + 1:x}"
    return service(f"s{number}", vip, *pods(family, endpoints))


def chains(kernel: Any, family: Family, start: str) -> set[str]:
    return {name for name in kernel.contents(family).hooks if name.startswith(start)}


def pass_with_a_look(agent: Any, *states: ServiceState) -> None:
    agent.driver._upkeep._last -= LOOK_SECONDS
    agent.sync(*states)


@FAMILIES
@OWNERSHIPS
def test_numbers_of_endpoints_that_no_service_has_any_more_leave_no_chain(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership
) -> None:
    agent = kernel.start(ownership, family)
    most = MANY // 2 - 1  # Two classes for each number: with more than MANY, a slow machine would look sooner.
    for count in (*range(1, most + 1), 3):
        agent.sync(service("web", VIP[family], *pods(family, count), node_port=30080, allowed=(f"{VIP[family]}",)))
    assert len(chains(kernel, family, "pick-")) == 2 * most
    pass_with_a_look(agent)
    assert len(chains(kernel, family, "pick-")) == 2 * most, "a Service that scales up and down keeps its chains"
    pass_with_a_look(agent)

    assert chains(kernel, family, "pick-") == {"pick-3", "pick-3-nodeport"}
    assert agent.sync().messages == 0
    agent.sync(service("web", VIP[family], *pods(family, 5)))
    assert chains(kernel, family, "pick-") == {"pick-3", "pick-3-nodeport", "pick-5"}


@FAMILIES
@OWNERSHIPS
def test_timeouts_come_and_go_and_what_clients_learned_stays(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership
) -> None:
    agent = kernel.start(ownership, family)

    def web(seconds: int | None) -> ServiceState:
        return service("web", VIP[family], *pods(family, 2), affinity=seconds, node_port=30080)

    agent.sync(web(60))
    client = learn(kernel, agent) if family is Family.IPV4 else None
    for seconds in (90, 120, 600):
        agent.sync(web(seconds))
    for _ in range(2):
        pass_with_a_look(agent)
    assert chains(kernel, family, "learn-6") == {"learn-600", "learn-600-nodeport"}
    assert chains(kernel, family, "learn-") == {"learn-affinity", "learn-600", "learn-600-nodeport"}
    assert client is None or set(kernel.elements(schema.AFFINITY)) == {client}

    agent.sync(web(None))
    for _ in range(2):
        pass_with_a_look(agent)
    assert not chains(kernel, family, "learn-")
    assert not chains(kernel, family, "prerouting-translated"), "what nobody learns by costs no packet anything"
    agent.sync(web(60))
    assert chains(kernel, family, "learn-") == {"learn-affinity", "learn-60", "learn-60-nodeport"}
    assert len(kernel.contents(family).rules["prerouting-translated"]) == 1
    agent.driver.forget()
    assert agent.sync().messages == 0, "the kernel has what is believed"


@FAMILIES
@OWNERSHIPS
def test_a_large_table_has_chains_for_a_rolling_update_before_it_begins(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership
) -> None:
    web = partial(numbered, service, family)
    agent = kernel.start(ownership, family)
    agent.sync(*(web(number) for number in range(SPARE_FROM // 8)))
    made = {f"pick-{count}" for count in range(6, 11)}
    assert chains(kernel, family, "pick-") == made

    for endpoints in (10, 8, 6, 8):
        assert agent.sync(web(3, endpoints)).messages <= 3, "only elements go and come: a chain takes more messages"
    for _ in range(2):
        pass_with_a_look(agent)
    assert chains(kernel, family, "pick-") == made, "a spare chain is kept"
    agent.sync(web(3, 9))
    again = kernel.start(ownership, family) if ownership is Ownership.PLAIN else agent
    again.driver.forget()
    assert again.sync(*(web(number, 9 if number == 3 else 8) for number in range(SPARE_FROM // 8))).messages == 0
    agent.sync(web(3, 5))
    assert chains(kernel, family, "pick-") == made | {"pick-5"}


@FAMILIES
@OWNERSHIPS
def test_a_table_that_has_grown_large_gets_one_spare_chain_at_each_look(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership
) -> None:
    web = partial(numbered, service, family)
    agent = kernel.start(ownership, family)
    agent.sync(web(0))
    agent.sync(*(web(number) for number in range(1, SPARE_FROM // 8)))
    assert chains(kernel, family, "pick-") == {"pick-8"}
    found = []
    for _ in range(6):
        pass_with_a_look(agent)
        found.append(chains(kernel, family, "pick-") - {"pick-8"})
    assert found == [
        set(),
        {"pick-7"},
        {"pick-7", "pick-9"},
        {"pick-7", "pick-9", "pick-6"},
        {"pick-7", "pick-9", "pick-6", "pick-10"},
        {"pick-7", "pick-9", "pick-6", "pick-10"},
    ]
    agent.driver.forget()
    assert agent.sync().messages == 0, "the kernel has what is believed"


def test_five_thousand_timeouts_at_once_are_rounded_beyond_a_bound_and_change_cheaply(
    kernel: Any, service: MakeService
) -> None:
    agent = kernel.start()

    def sticky(number: int) -> ServiceState:
        return service(
            f"s{number}", f"10.96.{1 + number // 250}.{1 + number % 250}", "10.244.2.2", affinity=100 + number
        )

    agent.sync(*map(sticky, range(5000)))
    learning = {name for name in chains(kernel, Family.IPV4, "learn-") if name != "learn-affinity"}
    assert len(learning) <= 2 * (EXACT + 64)
    problems = [problem for problem in agent.driver.problems if problem.reason == "AffinityTimeoutRounded"]
    assert len(problems) > 4500
    assert all(seconds <= rounded_up(seconds) <= seconds * 9 / 8 for seconds in range(1, 86401))

    report = agent.sync(service("s7", "10.96.1.8", "10.244.2.2", "10.244.2.3", affinity=107))
    again = agent.sync(service("s8", "10.96.1.9", "10.244.2.2", "10.244.2.3", affinity=86399))
    assert report.touched <= 3
    assert again.touched <= 4
    assert again.messages <= 40
