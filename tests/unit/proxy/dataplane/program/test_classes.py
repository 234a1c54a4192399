"""A class number says how an endpoint is picked, and nothing else has that number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS, SPECIAL_CHAINS, PickClass, pick_class

picks = st.builds(PickClass, st.integers(1, MAX_BACKENDS), st.booleans(), st.booleans(), st.booleans())


@pytest.mark.parametrize(
    ("pick", "number", "chain"),
    [
        pytest.param(PickClass(3), 0x0_0003, "pick-3", id="plain"),
        pytest.param(PickClass(3, cluster_scope=True), 0x1_0003, "pick-3-cluster", id="for pods and the node"),
        pytest.param(PickClass(10, node_port=True), 0x2_000A, "pick-10-nodeport", id="node port"),
        pytest.param(PickClass(3, sticky=True), 0x4_0003, "sticky-3", id="with affinity"),
        pytest.param(PickClass(MAX_BACKENDS, True, True, True), 0x7_7FFF, "sticky-32767-nodeport-cluster", id="all"),
    ],
)
def test_number_and_chain(pick: PickClass, number: int, chain: str) -> None:
    assert (pick.number, pick.chain) == (number, chain)


@given(picks)
def test_the_number_tells_the_class_again(pick: PickClass) -> None:
    assert pick_class(pick.number) == pick
    assert pick.number not in (0, *SPECIAL_CHAINS)


@given(picks, picks)
def test_classes_differ_in_number_and_in_chain(one: PickClass, other: PickClass) -> None:
    assert (one == other) is (one.number == other.number) is (one.chain == other.chain)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(0, id="the cleared scratch field"),
        *(pytest.param(number, id=chain) for number, chain in SPECIAL_CHAINS.items()),
        pytest.param(0x1_0000, id="no endpoints"),
        pytest.param(0x8_0001, id="an unknown bit"),
        pytest.param(MAX_BACKENDS + 1, id="a slot of the cluster scope"),
    ],
)
def test_other_numbers_are_no_class(number: int) -> None:
    assert pick_class(number) is None
