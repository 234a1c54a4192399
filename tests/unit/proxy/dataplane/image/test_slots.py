"""A list of endpoints is amended in as many elements as it must, and always to what a new assignment would give."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Protocol
from nodeagent.model.frontend import Backend
from nodeagent.model.packed_backends import local_backends, pack_backends
from nodeagent.proxy.dataplane.image.image import Elements, empty_image, endpoint_value, endpoint_values, frontend_key
from nodeagent.proxy.dataplane.image.render import MemberList, SlotList, assign_slots
from nodeagent.proxy.dataplane.image.slots import Members, Slots, changed_backends, new_list
from nodeagent.proxy.dataplane.program import schema

KEY = frontend_key("10.96.0.10", Protocol.TCP, 80)
PLAIN = SlotList(KEY, node_port=False, cluster_scope=False, sticky=False)
STICKY = SlotList(KEY, node_port=False, cluster_scope=True, sticky=True)
NOTHING = empty_image(schema.DATA_SETS)

backends = st.builds(Backend, st.integers(1, 12).map("10.244.0.{}".format), st.sampled_from([80, 81]), st.booleans())
lists = st.lists(backends, min_size=1, max_size=12, unique_by=lambda backend: (backend.address, backend.port))
of_one_port = lists.map(lambda some: [one for one in some if one.port == some[0].port])


def many(count: int) -> tuple[Backend, ...]:
    return tuple(Backend(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", 8080) for n in range(count))


def slots_of(where: SlotList, wanted: Sequence[Backend]) -> Slots:
    made, _ = new_list(where, wanted, NOTHING, {})
    assert isinstance(made, Slots)
    return made


@given(st.lists(lists | of_one_port, min_size=1, max_size=6), st.booleans(), st.sampled_from([PLAIN, STICKY]))
def test_amended_slots_equal_a_new_assignment(versions: list[list[Backend]], in_order: bool, where: SlotList) -> None:
    slots: Slots | None = None
    by_slot: list[bytes] = []
    image: Elements = {}
    for version in versions:
        wanted = pack_backends(sorted(version) if in_order else version)
        by_slot = assign_slots(by_slot, [endpoint_value(backend.address, backend.port) for backend in wanted])
        if slots is None:
            slots = slots_of(where, wanted)
            image = slots.elements()
        else:
            for key, endpoint in slots.amend(wanted).items():
                assert image.get(key) != endpoint, "an element is named that does not change"
                if endpoint is None:
                    del image[key]
                else:
                    image[key] = endpoint
        assert list(slots.endpoints) == by_slot
        assert image == slots.elements()


@given(lists | of_one_port | st.just([]))
def test_packed_backends_are_what_was_packed(some: list[Backend]) -> None:
    packed = pack_backends(some)
    assert (tuple(packed), len(packed), bool(packed)) == (tuple(some), len(some), bool(some))
    assert packed == tuple(some)
    assert packed == pack_backends(some)
    assert packed != pack_backends([*some, Backend("10.244.0.99", 80)])
    assert list(local_backends(packed)) == [one for one in some if one.local]
    assert packed[1:] == tuple(some[1:])


@given(st.lists(lists, min_size=1, max_size=6))
def test_members_are_what_the_list_says(versions: list[list[Backend]]) -> None:
    where = MemberList(KEY, schema.MASQUERADE_NODEPORTS)
    members = Members(where, versions[0])
    image = members.elements()
    for version in versions[1:]:
        for key, value in members.amend(version).items():
            assert image.get(key) != value, "an element is named that does not change"
            if value is None:
                del image[key]
            else:
                image[key] = value
        assert image == members.elements() == Members(where, version).elements()


@given(lists, lists)
def test_changes_are_found_in_any_order(before: list[Backend], after: list[Backend]) -> None:
    assert changed_backends(before, after) == (set(before) - set(after), set(after) - set(before))


@pytest.mark.parametrize("at", [0, 1, 255, 256, 257, 2500, 4743, 4744, 4999])
def test_one_endpoint_of_many_is_found_by_comparing_few(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what lies between the alike beginning and the alike end goes through sets."""
    whole = many(5000)
    less = whole[:at] + whole[at + 1 :]
    assert changed_backends(whole, less) == ({whole[at]}, set())
    assert changed_backends(less, whole) == (set(), {whole[at]})
    slots = slots_of(PLAIN, whole)
    packed: list[str] = []

    def counted(addresses: Sequence[str], port: int) -> list[bytes]:
        packed.extend(addresses)
        return endpoint_values(addresses, port)

    monkeypatch.setattr("nodeagent.proxy.dataplane.image.slots.endpoint_values", counted)
    assert len(slots.amend(less)) == (1 if at == 4999 else 2)
    assert len(slots.amend(whole)) == 1
    assert packed == [whole[at].address] * 2
