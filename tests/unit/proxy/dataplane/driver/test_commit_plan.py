"""The least transaction for each thing that can be wrong with the table."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.driver.belief import Belief, Ownership
from nodeagent.proxy.dataplane.driver.commit_plan import Planner, TablePlan
from nodeagent.proxy.dataplane.driver.transaction import Message
from nodeagent.proxy.dataplane.image.image import TableImage, empty_image, frontend_key, packed_class
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.program import build_program, verdict_elements
from nodeagent.wire.netlink.framing import attribute_map
from nodeagent.wire.netlink.uapi.nf_tables import (
    NFT_MSG_DELCHAIN,
    NFT_MSG_DELFLOWTABLE,
    NFT_MSG_DELRULE,
    NFT_MSG_DELSETELEM,
    NFT_MSG_DELTABLE,
    NFT_MSG_NEWCHAIN,
    NFT_MSG_NEWFLOWTABLE,
    NFT_MSG_NEWRULE,
    NFT_MSG_NEWSET,
    NFT_MSG_NEWSETELEM,
    NFT_MSG_NEWTABLE,
)

SPECS = {spec.name: spec for spec in schema.set_specs(counters=True)}
OPTIONS = ProgramOptions()
KEY, OTHER_KEY = (frontend_key("10.96.0.10", Protocol.TCP, port) for port in (80, 81))
ONE, TWO = packed_class(1), packed_class(2)

DISPATCHES = (schema.DISPATCH, schema.DISPATCH_ALLOWED, schema.DISPATCH_SCOPED)


def image(frontends: dict[bytes, bytes] | None = None, **sets: dict[bytes, bytes]) -> TableImage:
    return {**empty_image(schema.DATA_SETS), schema.FRONTENDS: frontends or {}, **sets}


def right(held: TableImage, **changes: Any) -> Belief:
    """A table of ours whose program knows one endpoint count and no affinity."""
    classes, timeouts = {PickClass(1)}, set[int]()
    chains = frozenset(chain.name for chain in build_program(Family.IPV4, OPTIONS, classes, timeouts).chains)
    fields: dict[str, Any] = {
        "exists": True,
        "usable": True,
        "claimed": True,
        "program_right": True,
        "classes": classes,
        "timeouts": timeouts,
        "chains": chains,
        "verdicts": verdict_elements(classes, timeouts),
    }
    return Belief(held, **{**fields, **changes})


def plan(
    belief: Belief,
    wanted: TableImage,
    dirty: Mapping[str, Iterable[bytes]] | None = None,
    ownership: Ownership = Ownership.PLAIN,
) -> TablePlan:
    return Planner(Family.IPV4, SPECS, OPTIONS, ownership).plan(belief, wanted, dirty)


def messages(plan: TablePlan) -> list[Message]:
    """Of all steps."""
    return [message for step in plan.steps for message in step.messages]


def kinds(plan: TablePlan) -> list[int]:
    return [message.kind for message in messages(plan)]


def chains(plan: TablePlan) -> set[str]:
    """Those that it makes."""
    made = (message for message in messages(plan) if message.kind == NFT_MSG_NEWCHAIN)
    return {message.about.removeprefix("chain ") for message in made}


def elements(plan: TablePlan, kind: int) -> list[tuple[str, tuple[bytes, ...]]]:
    return [(message.set, message.keys) for message in messages(plan) if message.kind == kind]


@pytest.mark.parametrize("dirty", [None, {}, {schema.FRONTENDS: {KEY}}], ids=["all", "nothing dirty", "dirty"])
@pytest.mark.parametrize("ownership", Ownership)
def test_nothing_to_do_is_an_empty_transaction(
    dirty: Mapping[str, Iterable[bytes]] | None, ownership: Ownership
) -> None:
    made = plan(right(image({KEY: ONE})), image({KEY: ONE}), dirty, ownership)
    assert not made.steps
    assert made.delta.empty


def test_an_owned_table_that_this_process_has_not_claimed_is_claimed_even_so() -> None:
    unclaimed = right(image({KEY: ONE}), claimed=False)
    assert kinds(plan(unclaimed, image({KEY: ONE}), ownership=Ownership.OWNED)) == [NFT_MSG_NEWTABLE]
    assert not plan(unclaimed, image({KEY: ONE}), ownership=Ownership.PLAIN).steps


def test_a_value_that_changes_is_deleted_and_then_put() -> None:
    held = image({KEY: ONE}, **{schema.CLUSTER_IPS: {b"\x0a\x60\x00\x0a": b""}})
    made = plan(right(held), image({KEY: packed_class(0xFFFE)}))
    assert kinds(made) == [NFT_MSG_DELSETELEM, NFT_MSG_DELSETELEM, NFT_MSG_NEWSETELEM]
    assert set(elements(made, NFT_MSG_DELSETELEM)) == {
        (schema.FRONTENDS, (KEY,)),
        (schema.CLUSTER_IPS, (b"\x0a\x60\x00\x0a",)),
    }
    assert elements(made, NFT_MSG_NEWSETELEM) == [(schema.FRONTENDS, (KEY,))]


def test_only_dirty_keys_are_looked_at() -> None:
    wanted = image({KEY: packed_class(0xFFFE), OTHER_KEY: packed_class(0xFFFE)})
    made = plan(right(image({KEY: ONE})), wanted, {schema.FRONTENDS: {OTHER_KEY}})
    assert elements(made, NFT_MSG_NEWSETELEM) == [(schema.FRONTENDS, (OTHER_KEY,))]


def test_a_new_endpoint_count_brings_its_chain_before_anything_leads_there() -> None:
    made = plan(right(image({KEY: ONE})), image({KEY: TWO}))
    assert kinds(made) == [
        NFT_MSG_NEWCHAIN,
        *[NFT_MSG_NEWRULE] * 3,
        *[NFT_MSG_NEWSETELEM] * 3,
        NFT_MSG_DELSETELEM,
        NFT_MSG_NEWSETELEM,
    ]
    *dispatch, target = elements(made, NFT_MSG_NEWSETELEM)
    assert dispatch == [(name, (TWO,)) for name in DISPATCHES]
    assert target == (schema.FRONTENDS, (KEY,))
    assert {message.set for message in made.transaction.messages} == {schema.FRONTENDS}, (
        "a packet that is in the table at the instant of a commit sees new elements, but no rules of new chains"
    )


def test_the_first_affinity_brings_what_learns_and_where_it_is_entered() -> None:
    sticky = {schema.STICKY_TIMEOUTS: {KEY: packed_class(60)}}
    made = plan(right(image({KEY: ONE})), image({KEY: ONE}, **sticky))
    brought = {"learn-60", "learn-60-nodeport", "learn-affinity", "translated"}
    hooked = {"prerouting-translated", "output-translated"}
    assert chains(made) == brought | hooked

    learning = right(image({KEY: ONE}, **sticky), timeouts={60})
    other = plan(learning, image({KEY: ONE}, **{schema.STICKY_TIMEOUTS: {KEY: packed_class(90)}}))
    assert chains(other) == {"learn-90", "learn-90-nodeport"}


def test_a_chain_that_is_no_longer_needed_stays() -> None:
    made = plan(right(image({KEY: ONE})), image())
    assert kinds(made) == [NFT_MSG_DELSETELEM]
    assert made.classes == {PickClass(1)}


def test_a_new_affinity_timeout_brings_its_learn_chains() -> None:
    wanted = image({KEY: ONE}, **{schema.STICKY_TIMEOUTS: {KEY: packed_class(60)}})
    made = plan(right(image({KEY: ONE})), wanted)
    assert made.timeouts == {60}
    assert [put for put in elements(made, NFT_MSG_NEWSETELEM) if put[0]] == [
        (schema.LEARN, (packed_class(60),)),
        (schema.NODEPORT_LEARN, (packed_class(60),)),
        (schema.STICKY_TIMEOUTS, (KEY,)),
    ]


def test_a_wrong_program_is_rewritten_in_place_and_the_elements_stay() -> None:
    """With every fault: the rules go first, then what leads to chains, then chains that nobody should have."""
    belief = right(image({KEY: ONE}), program_right=False)
    belief.chains |= {"somebody-elses"}
    belief.verdicts[schema.DISPATCH][TWO] = "somebody-elses"
    made = plan(belief, image({KEY: ONE}))

    assert kinds(made)[:5] == [NFT_MSG_DELRULE, *[NFT_MSG_DELSETELEM] * 3, NFT_MSG_DELCHAIN]
    assert elements(made, NFT_MSG_DELSETELEM) == [(name, tuple(belief.verdicts[name])) for name in DISPATCHES]
    assert {name for name, _ in elements(made, NFT_MSG_NEWSETELEM)} == {"", *DISPATCHES}
    assert NFT_MSG_NEWTABLE not in kinds(made)
    assert made.delta.empty
    assert not made.new_table


def test_a_chain_that_somebody_removed_comes_back_although_no_element_changes() -> None:
    belief = right(image({KEY: TWO}), program_right=False)
    made = plan(belief, image({KEY: TWO}))
    assert made.delta.empty
    assert made.classes == {PickClass(1), PickClass(2)}
    assert "chain pick-2" in [message.about for message in messages(made)]


@pytest.mark.parametrize(
    ("ownership", "exists", "start"),
    [
        pytest.param(Ownership.PLAIN, False, [NFT_MSG_NEWTABLE], id="plain, nothing there"),
        pytest.param(Ownership.OWNED, False, [NFT_MSG_NEWTABLE], id="owned, nothing there"),
        pytest.param(Ownership.PLAIN, True, [NFT_MSG_DELTABLE, NFT_MSG_NEWTABLE], id="plain, something else there"),
        pytest.param(Ownership.OWNED, True, [NFT_MSG_DELTABLE, NFT_MSG_NEWTABLE], id="owned, something else there"),
    ],
)
def test_a_table_is_made_or_replaced_and_hooked_when_its_ranges_are_in_force(
    ownership: Ownership, exists: bool, start: list[int]
) -> None:
    made = plan(Belief(image(), exists=exists), image({KEY: TWO}), ownership=ownership)
    order = kinds(made)

    assert made.new_table
    assert order[: len(start)] == start
    assert order[len(start) : len(start) + len(SPECS)] == [NFT_MSG_NEWSET] * len(SPECS)
    filled = [message.kind for message in made.transaction.messages]
    assert max(at for at, kind in enumerate(filled) if kind == NFT_MSG_NEWCHAIN) < filled.index(NFT_MSG_NEWRULE)
    assert (made.transaction.messages[-1].set, made.transaction.messages[-1].keys) == (schema.FRONTENDS, (KEY,))
    assert made.steps == (made.transaction, made.hooks)
    hooked = {m.about.removeprefix("chain ") for m in made.hooks.messages if m.kind == NFT_MSG_NEWCHAIN}
    assert hooked == {chain.name for chain in build_program(Family.IPV4, OPTIONS, (), ()).chains if chain.hook}
    assert made.classes == {PickClass(2)}


def test_a_replaced_table_keeps_what_clients_learned() -> None:
    learned = {b"k" * 12: (b"v" * 8, 60_000, 12_345)}
    made = plan(Belief(image(), exists=True, affinity=learned), image())
    last = made.transaction.messages[-1]
    assert (last.kind, last.set, last.keys) == (NFT_MSG_NEWSETELEM, schema.AFFINITY, (b"k" * 12,))
    assert (12_345).to_bytes(8, "big") in bytes(attribute_map(memoryview(last.body))[3])


def test_a_large_difference_is_split_into_messages_that_fit_their_length_field() -> None:
    many = {frontend_key(f"10.96.{n >> 8}.{n & 255}", Protocol.TCP, 80): ONE + b"name" for n in range(5000)}
    made = plan(right(image()), image(many))
    assert len(messages(made)) > 1
    assert all(len(message.body) < 1 << 16 for message in messages(made))
    assert sum(len(keys) for _, keys in elements(made, NFT_MSG_NEWSETELEM)) == 5000


def offloading(belief: Belief, wanted: TableImage, *, flowtable: bool) -> TablePlan:
    return Planner(Family.IPV4, SPECS, ProgramOptions(flowtable=flowtable), Ownership.PLAIN).plan(belief, wanted, None)


def test_a_flowtable_is_made_before_the_rules_that_use_it() -> None:
    for made in (
        offloading(Belief(image()), image(), flowtable=True),
        offloading(right(image(), program_right=False), image(), flowtable=True),
    ):
        order = kinds(made)
        assert order.count(NFT_MSG_NEWFLOWTABLE) == 1
        assert order.index(NFT_MSG_NEWFLOWTABLE) < order.index(NFT_MSG_NEWRULE)
        assert {"forward", "to-flowtable"} <= chains(made)


def test_a_flowtable_that_is_not_wanted_any_more_goes_after_the_rules_that_used_it() -> None:
    made = offloading(
        right(image(), program_right=False, flowtables=frozenset({"established"})), image(), flowtable=False
    )

    order = kinds(made)
    assert order.index(NFT_MSG_DELRULE) < order.index(NFT_MSG_DELFLOWTABLE)
    assert NFT_MSG_NEWFLOWTABLE not in order
    assert "forward" not in chains(made)


def test_a_standby_table_offloads_nothing() -> None:
    planner = Planner(Family.IPV4, SPECS, ProgramOptions(flowtable=True), Ownership.PLAIN)
    made = [message for step in planner.plan_standby(image(), {}) for message in step.messages]

    assert NFT_MSG_NEWFLOWTABLE not in [message.kind for message in made]
    assert "chain forward" not in [message.about for message in made]
