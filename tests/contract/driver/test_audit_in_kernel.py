"""Something changes our table and no generation shows it: the audit finds it within one round, and the next pass repairs it."""

import errno
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver import element_walk
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import KernelUnclear
from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.image.image import frontend_key
from nodeagent.proxy.dataplane.program import schema
from tests.contract.driver.conftest import Agent, Kernel
from tests.harness.effort import AT_LENGTH
from tests.harness.socket_faults import CALLS, ERRORS, failing_once

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

MakeService = Callable[..., ServiceState]
Plant = Callable[[Transaction, Any], None]
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
ROUND = 6
"""So many looks are more than a round of a small table."""


def states(service: MakeService, family: Family, *, many: int = 1) -> list[ServiceState]:
    if family is Family.IPV4:
        pods, allowed, vip = ("10.244.1.1", "10.244.2.2"), "203.0.113.0/24", "10.96.0.{}"
    else:
        pods, allowed, vip = ("fd00:244:1::1", "fd00:244:2::2"), "2001:db8:7::/48", "fd00:10:96::{:x}"
    web = service("web", vip.format(10), *pods, allowed=(allowed,), node_port=30080, affinity=60)
    return [web, *(service(f"n{n}", vip.format(20 + n), *pods) for n in range(many))]


def vip_of(family: Family) -> str:
    return "10.96.0.10" if family is Family.IPV4 else "fd00:10:96::a"


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it: from then on a round begins as soon as the last one has ended."""
    return partial(monkeypatch.setattr, element_walk, "AUDIT_SECONDS", 1e-6)


def plant_silently(kernel: Kernel, agent: Agent, plant: Plant) -> None:
    """Writes what the agent takes for a commit of its own: the owner of an owned table is the only one that can."""
    change = Transaction(agent.driver.family, agent.driver._specs)
    plant(change, agent.driver._belief)
    others = agent.driver._others
    kernel.run(lambda: agent.socket.commit(change, others.known()))


def found_in_a_round(agent: Agent) -> bool:
    return any(agent.changed_by_others() for _ in range(ROUND))


def remove(name: str) -> Plant:
    def plant(change: Transaction, belief: Any) -> None:
        change.write_delta(Delta({}, {name: [next(iter(belief.image[name]))]}))

    return plant


def swap(name: str, wrong: Callable[[bytes], bytes]) -> Plant:
    """Another value in an element's place: the number of elements is as it was."""

    def plant(change: Transaction, belief: Any) -> None:
        key, value = next(iter(belief.image[name].items()))
        change.write_delta(Delta({name: {key: wrong(value)}}, {name: [key]}))

    return plant


def add_cluster_ip(change: Transaction, belief: Any) -> None:
    change.write_delta(Delta({schema.CLUSTER_IPS: {bytes(len(next(iter(belief.image[schema.CLUSTER_IPS])))): b""}}))


def lead_nowhere(change: Transaction, belief: Any) -> None:
    del belief
    change.delete_verdicts(schema.DISPATCH, [(2).to_bytes(4, "little")])


def without_rules(change: Transaction, belief: Any) -> None:
    del belief
    change.flush_rules()


def without_hook(change: Transaction, belief: Any) -> None:
    del belief
    change.delete_chain("prerouting-unclaimed")


def gone(change: Transaction, belief: Any) -> None:
    del belief
    change.delete_table()


PLANTED = [
    pytest.param(remove(schema.BACKENDS), "elements", id="an endpoint less"),
    pytest.param(remove(schema.FRONTENDS), "elements", id="a frontend less"),
    pytest.param(remove(schema.ALLOWED_SOURCES), "elements", id="a source range less"),
    pytest.param(remove(schema.POD_CIDRS), "elements", id="a range less"),
    pytest.param(add_cluster_ip, "elements", id="an element more"),
    pytest.param(swap(schema.BACKENDS, lambda value: value[:-4] + b"\1\2\0\0"), "elements", id="another endpoint"),
    pytest.param(
        swap(schema.FRONTENDS, lambda value: (1).to_bytes(4, "little") + value[4:]), "elements", id="another class"
    ),
    pytest.param(lead_nowhere, "elements", id="a class leads nowhere"),
    pytest.param(without_rules, "rules", id="no rules"),
    pytest.param(without_hook, "chains", id="a chain less"),
    pytest.param(gone, "table", id="no table"),
]


@FAMILIES
@OWNERSHIPS
@pytest.mark.parametrize(("plant", "kind"), PLANTED)
def test_a_change_without_a_generation_is_found_within_a_round_and_repaired(
    kernel: Kernel,
    service: MakeService,
    always: Callable[[], None],
    family: Family,
    ownership: Ownership,
    plant: Plant,
    kind: str,
) -> None:
    agent = kernel.start(ownership, family)
    agent.sync(*states(service, family))
    right = kernel.contents(family)
    plant_silently(kernel, agent, plant)
    assert not any(agent.changed_by_others() for _ in range(ROUND)), "nothing reports it"

    always()
    assert found_in_a_round(agent)
    agent.sync()

    [drift] = agent.drifts
    assert (drift.object, drift.kind, drift.reported) == (family.value, kind, False)
    assert drift.detail
    found = kernel.contents(family)
    assert (found.image, found.verdicts, found.hooks) == (right.image, right.verdicts, right.hooks)
    assert {name: len(rules) for name, rules in found.rules.items()} == {n: len(r) for n, r in right.rules.items()}
    assert not found_in_a_round(agent)
    assert agent.sync().messages == 0


EDITS = [
    pytest.param("add set ip nodeagent theirs { type ipv4_addr; }", "sets", id="a set more"),
    pytest.param("chain ip nodeagent prerouting { policy drop; }", "chains", id="everything else is dropped"),
    pytest.param("table ip nodeagent { flags dormant; }", "table", id="the table sleeps"),
    pytest.param("add element ip nodeagent frontends { * : 0:2 }", "elements", id="every address is a frontend"),
    pytest.param("add rule ip nodeagent prerouting accept", "rules", id="a rule more"),
]


@pytest.mark.parametrize(("edit", "kind"), EDITS)
def test_a_change_of_a_plain_table_is_found_although_its_generation_was_missed(
    kernel: Kernel, service: MakeService, always: Callable[[], None], edit: str, kind: str
) -> None:
    agent = kernel.start()
    agent.sync(*states(service, Family.IPV4))
    before = kernel.generation()
    kernel.nft(edit)
    for generation in range(before, kernel.generation()):
        agent.socket.steps.add(generation)
    assert not agent.changed_by_others()

    always()
    assert found_in_a_round(agent)
    agent.sync()

    assert [(drift.kind, drift.reported) for drift in agent.drifts] == [(kind, False)]
    assert not found_in_a_round(agent)


def test_a_rule_that_was_put_in_place_of_ours_is_found_and_replaced(kernel: Kernel, service: MakeService) -> None:
    """Of the same kind, so that only what it says differs."""
    agent = kernel.start()
    agent.sync(*states(service, Family.IPV4))
    right = kernel.contents().rules["refuse"][-1].expressions
    listed = kernel.command(kernel.nft_program, "-a", "list", "chain", "ip", "nodeagent", "refuse").stdout
    [handle] = re.findall(r"^\s*reject # handle (\d+)$", listed, re.MULTILINE)
    kernel.nft(f"replace rule ip nodeagent refuse handle {handle} reject with icmp type admin-prohibited")
    assert kernel.contents().rules["refuse"][-1].expressions != right

    assert agent.changed_by_others()
    agent.sync()

    [drift] = agent.drifts
    assert (drift.kind, drift.detail) == ("rules", "rule 3 of chain refuse is another one")
    assert kernel.contents().rules["refuse"][-1].expressions == right


def test_a_difference_names_the_service(kernel: Kernel, service: MakeService, always: Callable[[], None]) -> None:
    agent = kernel.start()
    agent.sync(*states(service, Family.IPV4))
    key = frontend_key(vip_of(Family.IPV4), Protocol.TCP, 80)
    plant_silently(kernel, agent, lambda change, _: change.write_delta(Delta({}, {schema.FRONTENDS: [key]})))
    plant_silently(kernel, agent, add_frontend)

    always()
    assert found_in_a_round(agent)

    assert [drift.detail for drift in agent.drifts] == [
        "an element of Service default/web in frontends is gone or another one"
    ]


def add_frontend(change: Transaction, belief: Any) -> None:
    """So that their number is as before."""
    value = next(iter(belief.image[schema.FRONTENDS].values()))
    change.write_delta(Delta({schema.FRONTENDS: {frontend_key("10.96.9.9", Protocol.TCP, 80): value}}))


def test_a_change_that_was_reported_counts_as_reported(kernel: Kernel, service: MakeService) -> None:
    agent = kernel.start()
    agent.sync(*states(service, Family.IPV4))
    kernel.nft("flush chain ip nodeagent prerouting")
    assert agent.changed_by_others()
    [drift] = agent.drifts
    assert (drift.kind, drift.reported) == ("rules", True)
    assert drift.detail.startswith("chain prerouting has 0 rules, not ")


@FAMILIES
@OWNERSHIPS
def test_an_audit_of_what_is_right_writes_nothing(
    kernel: Kernel, service: MakeService, always: Callable[[], None], family: Family, ownership: Ownership
) -> None:
    always()
    agent = kernel.start(ownership, family)
    agent.sync(*states(service, family, many=150))
    generation = kernel.generation()
    for _ in range(60):
        assert not agent.changed_by_others()
        assert agent.sync().messages == 0
    assert agent.drifts == []
    assert kernel.generation() == generation


@OWNERSHIPS
def test_changes_of_passes_between_slices_are_not_drift(
    kernel: Kernel, service: MakeService, always: Callable[[], None], ownership: Ownership
) -> None:
    """Both families over one socket, endpoints and Services come and go, and clients of theirs are forgotten."""
    always()
    socket = kernel.run(Ruleset)
    agents = [kernel.start(ownership, family, socket=socket) for family in Family]
    held = {family: states(service, family, many=150) for family in Family}
    for agent in agents:
        agent.sync(*held[agent.driver.family])
    for turn in range(60):
        for agent in agents:
            family = agent.driver.family
            pods = [f"10.244.2.{n}" if family is Family.IPV4 else f"fd00:244:2::{n:x}" for n in range(9)]
            busy = service("web", vip_of(family), *pods[: turn % 9], affinity=60 + turn % 3, node_port=30080)
            passing = held[family][1 + turn]
            gone = (passing.key,) if turn % 2 else ()
            agent.sync(busy, *(() if gone else (passing,)), gone=gone)
            assert not agent.changed_by_others()
            if turn % 10 == 0:
                assert agent.purge()
    assert [agent.drifts for agent in agents] == [[], []]
    assert all(agent.driver._others._walk._begun is not None for agent in agents)


def test_an_interrupted_comparison_is_made_again_and_is_no_drift(
    kernel: Kernel, service: MakeService, always: Callable[[], None]
) -> None:
    always()
    agent = kernel.start(Ownership.OWNED)
    agent.sync(*states(service, Family.IPV4, many=60))
    with kernel.storm():
        assert not any(agent.changed_by_others() for _ in range(30))
    plant_silently(kernel, agent, without_hook)
    assert found_in_a_round(agent)
    assert [drift.kind for drift in agent.drifts] == ["chains"]


FAILING = list(product(Ownership, [*ERRORS, errno.EBUSY]))
EACH = 3
"""Of so many calls one fails: in each case at length, else in all cases of FAILING together, which take turns."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("turn", "ownership", "number"),
    [pytest.param(turn, *case, id=f"{case[1]}-{case[0].value}") for turn, case in enumerate(FAILING)],
)
def test_a_kernel_that_refuses_or_loses_an_answer_is_no_drift(
    kernel: Kernel,
    service: MakeService,
    always: Callable[[], None],
    turn: int,
    ownership: Ownership,
    call: str,
    number: int,
) -> None:
    """At each call of a round once; what really drifts is found all the same in the round after it."""
    always()
    agent = kernel.start(ownership)
    agent.sync(*states(service, Family.IPV4, many=40))
    first, step = (0, EACH) if AT_LENGTH else (turn * EACH, len(FAILING) * EACH)
    reached, at = True, first
    while reached:
        with failing_once(call, at, number) as failed:
            for _ in range(3):
                with suppress(KernelUnclear, OSError):
                    assert not agent.changed_by_others()
            reached = failed()
        at += step
    assert at > 15, "a round has many calls"
    assert agent.drifts == []
    plant_silently(kernel, agent, without_hook)
    assert found_in_a_round(agent)
