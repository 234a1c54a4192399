"""Who may connect, and who has to go for it."""

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.runtime.serving.admission import Admission, ConnectionLimits, site_of

LIMITS = ConnectionLimits(total=8, per_address=6, strangers=4, strangers_per_address=3, stranger_s=30)


class Door:
    """An admission whose connections are noted when they are closed."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.now = 0.0
        self.closed: list[int] = []
        self.admission = Admission(limits, lambda: self.now)

    def enter(self, key: int, address: str = "192.0.2.1", *, known: bool = False, busy: bool = False) -> bool:
        admitted = self.admission.enter(key, address, lambda: self.closed.append(key))
        if admitted and (known or busy):
            self.admission.begin(key, "somebody")
            if not busy:
                self.admission.end(key)
        return admitted


def test_the_stranger_who_has_waited_longest_makes_room() -> None:
    door = Door()
    for key in range(6):
        assert door.enter(key, f"192.0.2.{key}")
        door.now += LIMITS.handshake_s
    assert (door.closed, door.admission.strangers) == ([0, 1], 4)


def test_of_nodes_that_come_all_at_once_as_many_finish_as_there_are_places() -> None:
    door = Door()
    admitted = [key for key in range(40) if door.enter(key, f"192.0.2.{key}")]
    assert (admitted, door.closed) == ([0, 1, 2, 3], [])


def test_nodes_with_several_connections_each_give_way_to_nodes_with_none() -> None:
    door = Door()
    for node in range(4):
        for connection in range(3):
            door.enter(10 * node + connection, f"192.0.2.{node}")
    assert {0, 10, 20, 30}.isdisjoint(door.closed)
    assert door.admission.strangers == 4


def test_a_few_addresses_that_never_end_do_not_keep_out_another() -> None:
    door = Door()
    for key in range(100):
        door.enter(key, f"192.0.2.{key % 2}")
    assert door.enter(100, "198.51.100.1")
    assert 100 not in door.closed
    for key in range(101, 200):
        door.enter(key, f"192.0.2.{key % 2}")
    assert 100 not in door.closed


def test_an_address_pushes_out_only_its_own_unknown_clients() -> None:
    door = Door()
    door.enter(0, "192.0.2.99")
    assert all(door.enter(key) for key in range(1, 20))
    assert door.closed == list(range(1, 17))


def test_unknown_clients_push_out_unknown_clients_first() -> None:
    door = Door()
    for key in range(5):
        door.enter(key, f"192.0.2.{key}", known=True)
    for key in range(5, 50):
        door.enter(key, f"198.51.100.{key}")
    assert not {*range(5)} & {*door.closed}
    assert len(door.admission) <= LIMITS.total


def test_of_those_who_are_known_the_one_idle_longest_goes_and_never_a_busy_one() -> None:
    door = Door()
    for key in range(7):
        door.enter(key, f"192.0.2.{key}", busy=True)
    door.enter(7, "192.0.2.7", known=True)
    assert door.enter(8, "192.0.2.8", busy=True)
    assert door.closed == [7]
    assert not door.enter(9, "192.0.2.9")
    assert door.closed == [7]
    door.admission.end(3)
    assert door.enter(10, "192.0.2.10")
    assert door.closed == [7, 3]


def test_one_address_has_no_more_than_its_share() -> None:
    door = Door()
    for key in range(6):
        door.enter(key, busy=True)
    assert not door.enter(6)
    assert door.enter(7, "192.0.2.7")
    door.admission.leave(0)
    assert door.enter(8)


def test_unknown_clients_have_half_a_minute() -> None:
    door = Door()
    door.enter(0)
    door.enter(1, known=True)
    door.now = 15
    door.enter(2)
    door.now = 30
    assert (door.admission.close_overdue(), door.closed) == (1, [0])
    door.now = 45
    assert (door.admission.close_overdue(), door.closed) == (1, [0, 2])


def test_a_machine_with_a_whole_network_of_addresses_counts_once() -> None:
    assert site_of("2001:db8::1") == site_of("2001:db8::ffff:1") != site_of("2001:db8:0:1::1")
    assert site_of("::ffff:192.0.2.1") == site_of("192.0.2.1") == "192.0.2.1"
    assert site_of("fe80::1%eth0") == site_of("fe80::2")


STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave", "begin", "end"]), st.integers(0, 30), st.integers(0, 3)), max_size=80
)


@given(steps=STEPS)
def test_no_sequence_goes_beyond_the_limits_or_closes_the_busy(steps: list[tuple[str, int, int]]) -> None:
    door = Door()
    here: dict[int, int] = {}
    for what, key, address in steps:
        if what == "enter" and key not in here:
            if door.enter(key, f"192.0.2.{address}"):
                here[key] = 0
        elif key in here:
            if what == "leave":
                door.admission.leave(key)
                del here[key]
            elif what == "begin":
                door.admission.begin(key, "somebody")
                here[key] += 1
            elif what == "end" and here[key]:
                door.admission.end(key)
                here[key] -= 1
        for gone in door.closed:
            assert here.pop(gone) == 0
        door.closed.clear()
        assert len(door.admission) == len(here) <= LIMITS.total
        assert door.admission.strangers <= LIMITS.strangers


def test_at_a_port_that_knows_nobody_the_one_that_asked_longest_ago_goes() -> None:
    door = Door()
    for key in range(3):
        door.enter(key)
    door.admission.note_request(0)
    door.enter(3)
    assert door.closed == [1]


def test_a_network_of_ipv6_has_the_share_of_one_address() -> None:
    door = Door()
    for key in range(10):
        door.enter(key, f"2001:db8::{key:x}")
    assert door.closed == list(range(7))
    assert door.enter(10, "2001:db8:0:1::1")
    assert door.closed == list(range(7))


def test_a_flood_of_one_port_leaves_those_of_another() -> None:
    door = Door(ConnectionLimits(total=6, strangers=6, strangers_per_address=6))
    close: list[int] = []
    door.admission.enter("quiet", "192.0.2.1", lambda: close.append(0), port=1)
    for key in range(50):
        door.admission.enter(key, "192.0.2.2", lambda: None, port=2)
    assert not close


def test_a_user_has_one_bound_for_all_addresses() -> None:
    door = Door(ConnectionLimits(total=8, per_user=2))
    for key in range(4):
        door.enter(key, f"192.0.2.{key}")
    assert [door.admission.begin(key, "reader") for key in range(3)] == [True, True, False]
    assert door.admission.begin(3, "admin")
    door.admission.end(0)
    assert door.admission.begin(2, "reader")
    assert door.closed == [0]


def test_a_connection_counts_for_the_user_who_asked_last() -> None:
    door = Door(ConnectionLimits(per_user=1))
    door.enter(0)
    door.enter(1)
    for user in ("a", "b", "a"):
        assert door.admission.begin(0, user)
        door.admission.end(0)
    assert door.admission.begin(1, "b")
    assert door.closed == []


def test_of_unfinished_heads_the_largest_goes_when_they_are_too_much() -> None:
    door = Door(ConnectionLimits(unfinished_bytes=100))
    for key, size in enumerate((10, 60, 30)):
        door.enter(key, f"192.0.2.{key}")
        door.admission.note_unfinished(key, size)
    assert (door.closed, door.admission.unfinished_bytes) == ([], 100)
    door.admission.note_unfinished(0, 11)
    assert (door.closed, door.admission.unfinished_bytes) == ([1], 41)
    door.admission.note_unfinished(0, 0)
    door.admission.leave(2)
    assert door.admission.unfinished_bytes == 0
