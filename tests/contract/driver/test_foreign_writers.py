"""Others change the ruleset all the time, their own tables or a plain one of ours: what is ours stays right."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.generations import OwnSteps
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import DumpInterrupted, KernelUnclear, StaleGeneration
from nodeagent.proxy.dataplane.program import schema
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETRULE, NFT_MSG_GETSETELEM
from tests.harness.effort import AT_LENGTH

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

T = TypeVar("T")
MakeService = Callable[..., ServiceState]
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
TABLES = {Family.IPV4: "ip nodeagent", Family.IPV6: "ip6 nodeagent"}
THEIRS = "add table inet theirs; delete table inet theirs"
WITHIN = 1.0
MANY = 200
"""So many classes make a program whose dump does not fit one datagram."""


class CountingSocket(Ruleset):
    """Counts the dumps of rules: a full look has one."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[memoryview]:
        self.looks += kind == NFT_MSG_GETRULE
        return super().dump(kind, family, body)


def states(service: MakeService, family: Family, *, many: int = 0) -> list[ServiceState]:
    if family is Family.IPV4:
        pods = [f"10.244.2.{number}" for number in range(2, 4 + many)]
        made = [service("web", "10.96.0.10", *pods[:2], affinity=60, node_port=30080, allowed=("203.0.113.0/24",))]
        return made + [service(f"n{n}", f"10.96.1.{n}", *pods[:n]) for n in range(3, 3 + many)]
    pods = [f"fd00:244:2::{number:x}" for number in range(2, 4 + many)]
    made = [service("web", "fd00:10:96::10", *pods[:2], affinity=60, node_port=30080, allowed=("2001:db8:7::/48",))]
    return made + [service(f"n{n}", f"fd00:10:96::1:{n:x}", *pods[:n]) for n in range(3, 3 + many)]


def other(service: MakeService, family: Family, number: int) -> ServiceState:
    """A service that is changed again and again."""
    if family is Family.IPV4:
        return service("busy", "10.96.0.99", f"10.244.3.{number % 200 + 1}")
    return service("busy", "fd00:10:96::99", f"fd00:244:3::{number % 200 + 1:x}")


def rules_of(kernel: Any, family: Family) -> dict[str, int]:
    return {chain: len(rules) for chain, rules in kernel.contents(family).rules.items()}


@FAMILIES
def test_an_interrupted_dump_is_read_to_its_end_and_the_next_one_works(
    kernel: Any, service: MakeService, family: Family
) -> None:
    kernel.start(family=family).sync(*states(service, family, many=MANY))
    number, table = (2 if family is Family.IPV4 else 10), b"\x0e\x00\x01\x00nodeagent\0\0\0"
    socket = kernel.run(Ruleset)

    def interrupted() -> None:
        rules = socket.dump(NFT_MSG_GETRULE, number, table)
        next(rules)
        kernel_changes()
        for _ in rules:
            continue

    def kernel_changes() -> None:
        change = Transaction(Family.IPV4, {})
        change.probe_owned_table("theirs")
        writer.commit(change)

    writer = kernel.run(Ruleset)
    for _ in range(3):
        with pytest.raises(DumpInterrupted, match="while it was read"):
            kernel.run(interrupted)
        assert kernel.run(lambda: sum(1 for _ in socket.dump(NFT_MSG_GETRULE, number, table))) > MANY
    writer.close()
    socket.close()


def test_a_dump_that_nobody_reads_to_its_end_does_not_hinder_the_next(kernel: Any, service: MakeService) -> None:
    kernel.start().sync(*states(service, Family.IPV4, many=MANY))
    table = b"\x0e\x00\x01\x00nodeagent\0\0\0"
    socket = kernel.run(Ruleset)

    kernel.run(lambda: next(socket.dump(NFT_MSG_GETRULE, 2, table)))

    assert kernel.run(lambda: sum(1 for _ in socket.dump(NFT_MSG_GETRULE, 2, table))) > MANY
    socket.close()


def test_a_silent_kernel_is_distinguished_from_one_that_refuses(
    kernel: Any, service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = kernel.start()
    agent.sync(*states(service, Family.IPV4))
    socket = kernel.run(Ruleset)
    table = b"\x0e\x00\x01\x00nodeagent\0\0\0"
    for error, said in ((TimeoutError(), "no answer"), (OSError(105, "No buffer space available"), "No buffer space")):
        with monkeypatch.context() as broken:
            broken.setattr(socket._socket, "receive", raising(error))
            for ask in (socket.generation, lambda: list(socket.dump(NFT_MSG_GETRULE, 2, table))):
                with pytest.raises(KernelUnclear, match=said):
                    kernel.run(ask)
    assert kernel.run(lambda: list(socket.dump(NFT_MSG_GETRULE, 2, table)))
    assert kernel.run(socket.generation) == kernel.generation()
    socket.close()


def raising(error: Exception) -> Callable[..., None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_a_commit_made_for_an_older_generation_is_refused_whole(kernel: Any) -> None:
    agent = kernel.start()
    change = Transaction(Family.IPV4, {})
    change.claim_table(owned=False)
    before = kernel.generation()
    kernel.nft("add table inet theirs")

    with pytest.raises(StaleGeneration):
        kernel.run(lambda: agent.socket.commit(change, before))

    assert "nodeagent" not in kernel.nft("list tables")
    assert agent.socket.steps.follow(before) == before
    kernel.run(lambda: agent.socket.commit(change, before + 1))
    assert agent.socket.steps.follow(before + 1) == kernel.generation() == before + 2
    kernel.run(lambda: agent.socket.commit(change, before + 2))
    assert agent.socket.steps.follow(before + 2) == kernel.generation(), (
        "nothing was new, so there is no new generation"
    )


def test_own_commits_explain_a_generation_only_without_a_gap() -> None:
    steps = OwnSteps()
    assert steps.follow(5) == 5
    for generation in (5, 6, 7):
        steps.add(generation)
    assert [steps.follow(known) for known in (4, 5, 6, 7, 8, 9)] == [4, 8, 8, 8, 8, 9]
    assert [steps.covers(5, generation) for generation in (5, 7, 8, 9, 4)] == [True, True, True, False, False]
    steps.add(12)
    assert [steps.follow(known) for known in (5, 8, 11, 12, 13)] == [5, 8, 11, 13, 13]
    steps.add(2**32 - 1)
    assert steps.follow(2**32 - 1) == 0


def test_a_commit_of_one_family_costs_the_other_no_look(kernel: Any, service: MakeService) -> None:
    socket = kernel.run(CountingSocket)
    four, six = (kernel.start(family=family, socket=socket) for family in Family)
    for agent in (four, six):
        agent.sync(*states(service, agent.driver.family))
    for number in range(20):
        agent = (four, six)[number % 2]
        agent.sync(other(service, agent.driver.family, number))
        before = socket.looks
        assert not four.changed_by_others()
        assert not six.changed_by_others()
        assert socket.looks == before

    kernel.nft(THEIRS)

    assert not four.changed_by_others()
    assert not six.changed_by_others()
    assert socket.looks == before + 2, "somebody else's change is looked at, once by each"


@FAMILIES
def test_a_pass_that_meets_what_others_did_repairs_it_at_once(
    kernel: Any, service: MakeService, family: Family
) -> None:
    """Nobody looked before; the commit itself finds another generation than expected."""
    agent = kernel.start(family=family)
    agent.sync(*states(service, family), other(service, family, 0))
    right = rules_of(kernel, family)
    for number in range(1, 4):
        kernel.nft(f"flush chain {TABLES[family]} prerouting")
        kernel.nft(THEIRS)
        agent.sync(other(service, family, number))
        assert rules_of(kernel, family) == right
        assert not agent.changed_by_others()


@FAMILIES
@OWNERSHIPS
def test_twenty_five_changes_a_second_end_nothing(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership
) -> None:
    agent = kernel.start(ownership, family)
    agent.sync(*states(service, family, many=MANY))
    with kernel.foreign_writer(THEIRS, every=0.04):
        began = time.monotonic()
        while time.monotonic() < began + 3:
            assert not agent.changed_by_others()
            assert agent.sync(other(service, family, int(time.monotonic() * 10))).new_table is False
            time.sleep(0.05)


@FAMILIES
def test_damage_is_repaired_within_a_second_however_much_others_and_we_change(
    kernel: Any, service: MakeService, family: Family
) -> None:
    agent = kernel.start(family=family)
    agent.sync(*states(service, family))
    agent.sync(other(service, family, 0))
    right = rules_of(kernel, family)
    with kernel.foreign_writer(THEIRS, every=0.05):
        for _ in range(5):
            kernel.nft(f"flush chain {TABLES[family]} prerouting")
            began = time.monotonic()
            number = 0
            while rules_of(kernel, family) != right:
                assert time.monotonic() < began + WITHIN
                number += 1
                agent.sync(other(service, family, number))
                if agent.changed_by_others():
                    agent.sync()


def in_the_end(work: Callable[[], T]) -> T:
    """What it returns, tried again as the engine does where no look at the table came to its end between others' changes."""
    end = time.monotonic() + 60
    while True:
        try:
            return work()
        except DumpInterrupted:
            assert time.monotonic() < end


@FAMILIES
def test_changes_as_fast_as_the_kernel_takes_them_end_nothing_and_services_still_change(
    kernel: Any, service: MakeService, family: Family
) -> None:
    agent = kernel.start(family=family)
    agent.sync(*states(service, family, many=MANY))
    with kernel.storm():
        for number in range(4 if AT_LENGTH else 2):
            assert not in_the_end(agent.changed_by_others)
            changes = other(service, family, number)
            assert in_the_end(partial(agent.sync, changes)).messages
            assert not agent.driver.problems
    assert not agent.changed_by_others()
    assert agent.sync().messages == 0


@FAMILIES
def test_a_table_is_adopted_and_repaired_while_others_write(kernel: Any, service: MakeService, family: Family) -> None:
    kernel.start(family=family).sync(*states(service, family))
    right = rules_of(kernel, family)
    kernel.nft(f"flush chain {TABLES[family]} prerouting")
    with kernel.foreign_writer(THEIRS, every=0.02):
        second = kernel.start(family=family)
        second.sync(*states(service, family))
        assert rules_of(kernel, family) == right


# What a count cannot show: (what is removed and added in its place, IPv4; the same for IPv6).
REPLACED = [
    pytest.param("backends", "10.96.1.3 . tcp . 80 . 1", "10.96.1.3 . tcp . 80 . 1 : 10.9.9.9 . 1", id="endpoint"),
    pytest.param("frontends", "10.96.0.10 . tcp . 80", "10.96.0.10 . tcp . 80 : 0:1", id="class"),
    pytest.param("frontends", "10.96.0.10 . tcp . 80", '10.96.0.10 . tcp . 80 comment "other" : 4:2', id="comment"),
    pytest.param("cluster-ips", "10.96.0.10", "10.96.7.7", id="key of a set"),
    pytest.param("nodeports", "tcp . 30080", "tcp . 30080 : 0:1", id="class of a node port"),
    pytest.param(
        "allowed-sources",
        "198.51.100.1 . tcp . 80 . 203.0.113.0/24",
        "198.51.100.1 . tcp . 80 . 203.0.112.0/24",
        id="source range",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), REPLACED)
def test_a_foreign_element_in_the_place_of_ours_is_found_by_the_walk(
    kernel: Any, service: MakeService, name: str, before: str, after: str
) -> None:
    agent = kernel.start()
    agent.sync(*states(service, Family.IPV4, many=1))
    right = kernel.image()
    kernel.nft(f"delete element ip nodeagent {name} {{ {before} }}")
    kernel.nft(f"add element ip nodeagent {name} {{ {after} }}")
    assert kernel.image() != right

    assert agent.changed_by_others()
    agent.sync()

    assert kernel.image() == right
    assert not agent.changed_by_others()


@FAMILIES
def test_a_walk_finds_nothing_where_nothing_is_wrong(kernel: Any, service: MakeService, family: Family) -> None:
    agent = kernel.start(family=family)
    agent.sync(*states(service, family, many=20))
    kernel.nft(THEIRS)
    for _ in range(20):
        assert not agent.changed_by_others()
    assert agent.driver._others._walk.take(agent.driver._belief.image, 0.0) == ({}, False), "it has gone round"


def test_a_verdict_that_leads_elsewhere_is_found_at_once(kernel: Any, service: MakeService) -> None:
    agent = kernel.start()
    agent.sync(*states(service, Family.IPV4, many=3))
    right = kernel.contents().verdicts
    (key, _), (_, wrong) = list(right[schema.DISPATCH].items())[:2]
    change = Transaction(Family.IPV4, agent.driver._specs)
    change.delete_verdicts(schema.DISPATCH, [key])
    change.add_verdicts({schema.DISPATCH: {key: wrong}})
    writer = kernel.run(Ruleset)
    kernel.run(lambda: writer.commit(change))
    writer.close()
    assert kernel.contents().verdicts != right

    assert agent.changed_by_others()
    agent.sync()

    assert kernel.contents().verdicts == right


def test_nothing_is_dumped_while_nobody_else_writes(
    kernel: Any, service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = kernel.run(CountingSocket)
    agent = kernel.start(socket=socket)
    agent.sync(*states(service, Family.IPV4))
    asked: list[int] = []
    real: Callable[..., int] = socket.count_confirmed

    def count_confirmed(kind: int, *rest: Any, **more: Any) -> int:
        asked.append(kind)
        return real(kind, *rest, **more)

    monkeypatch.setattr(socket, "count_confirmed", count_confirmed)
    before = socket.looks
    for number in range(10):
        agent.sync(other(service, Family.IPV4, number))
        assert not agent.changed_by_others()
    assert (socket.looks, asked) == (before, [])

    kernel.nft(THEIRS)
    assert not agent.changed_by_others()
    assert set(asked) == {NFT_MSG_GETSETELEM}, "then elements are compared"
