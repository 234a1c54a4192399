"""Everything is compared in good time after somebody's change, and every few minutes without one, a little at every step."""

import pytest

from nodeagent.proxy.dataplane.driver.element_walk import (
    AUDIT_SECONDS,
    FEWEST_KEYS,
    MOST_KEYS,
    WALK_SECONDS,
    ElementWalk,
)
from nodeagent.proxy.dataplane.image.image import TableImage

NAMES = ("frontends", "backends", "hairpin")
TICK = 0.1


def image(frontends: int, backends: int) -> TableImage:
    return {
        "frontends": {number.to_bytes(4, "big"): b"class" for number in range(frontends)},
        "backends": {number.to_bytes(4, "big"): b"endpoint" for number in range(backends)},
        "hairpin": {},
        "service-cidrs": {b"range": b""},
    }


def walked(walk: ElementWalk, held: TableImage, steps: int, start: float = 0.0) -> list[dict[str, set[bytes]]]:
    taken = []
    for step in range(steps):
        slices = walk.take(held, start + step * TICK).elements
        assert all(held[name][key] == value for name, elements in slices.items() for key, value in elements.items())
        taken.append({name: set(elements) for name, elements in slices.items()})
    return taken


def union(slices: list[dict[str, set[bytes]]]) -> dict[str, set[bytes]]:
    return {name: set().union(*(one.get(name, set()) for one in slices)) for name in NAMES}


def test_nothing_is_compared_while_nobody_else_writes() -> None:
    assert walked(ElementWalk(NAMES), image(10, 10), 5) == [{}] * 5


@pytest.mark.parametrize(("frontends", "backends"), [(0, 0), (1, 0), (10, 30), (3_000, 50_000)])
def test_after_a_change_every_element_is_compared_in_time_and_then_no_more(frontends: int, backends: int) -> None:
    walk, held = ElementWalk(NAMES), image(frontends, backends)
    walk.restart()
    slices = walked(walk, held, round(WALK_SECONDS / TICK) + 20)

    assert union(slices) == {name: set(held[name]) for name in NAMES}
    assert sum(map(len, (keys for one in slices for keys in one.values()))) == frontends + backends
    share = (frontends + backends) * TICK / WALK_SECONDS
    assert max(sum(map(len, one.values())) for one in slices) <= max(FEWEST_KEYS, share + 1)
    assert slices[-1] == {}


def test_a_slice_has_its_bound_however_long_nobody_asked() -> None:
    walk, held = ElementWalk(NAMES), image(0, 50_000)
    walk.restart()
    walk.take(held, 0.0)
    assert sum(map(len, walk.take(held, 1000.0).elements.values())) == MOST_KEYS


def test_changes_behind_the_walk_are_found_in_the_next_round() -> None:
    walk, held = ElementWalk(NAMES), image(0, 20_000)
    walk.restart()
    first = walked(walk, held, 300)
    walk.restart()
    second = walked(walk, held, round(2 * WALK_SECONDS / TICK), start=300 * TICK)

    assert union(second)["backends"] == set(held["backends"])
    assert 0 < len(union(first)["backends"]) < 20_000


def test_elements_that_went_meanwhile_are_left_out_and_new_ones_met_after_the_next_change() -> None:
    walk, held = ElementWalk(NAMES), image(0, 500)
    walk.restart()
    walk.take(held, 0.0)
    kept = dict(list(held["backends"].items())[::2])
    held["backends"] = kept | {b"new": b"endpoint"}
    assert set().union(*(one.get("backends", set()) for one in walked(walk, held, 50))) <= set(kept)

    walk.restart()
    assert union(walked(walk, held, 50))["backends"] == set(held["backends"])


@pytest.mark.parametrize(("frontends", "backends"), [(0, 0), (10, 30), (11_000, 110_000)])
def test_a_round_of_everything_begins_by_itself_again_and_again(frontends: int, backends: int) -> None:
    """Its outline once, each element once, evenly over most of its time."""
    walk, held = ElementWalk(NAMES), image(frontends, backends)
    steps = round(AUDIT_SECONDS / TICK)
    slices = [walk.take(held, step * TICK) for step in range(3 * steps)]

    assert not any(part.elements or part.outline for part in slices[:steps]), "all has just been written or read"
    assert [step for step, part in enumerate(slices) if part.outline] == [steps, 2 * steps]
    for begin in (steps, 2 * steps):
        taken = [
            (name, key)
            for part in slices[begin : begin + steps]
            for name in part.elements
            for key in part.elements[name]
        ]
        assert sorted(taken) == sorted((name, key) for name in NAMES for key in held[name])
    most = max((len(elements) for part in slices for elements in part.elements.values()), default=0)
    assert most <= max(FEWEST_KEYS, (frontends + backends) * TICK / AUDIT_SECONDS * 1.25 + 1)


def test_a_change_hurries_the_round_that_is_under_way() -> None:
    walk, held = ElementWalk(NAMES), image(0, 110_000)
    begin = round(AUDIT_SECONDS / TICK)
    for step in range(begin + 100):
        walk.take(held, step * TICK)
    walk.restart()
    slices = walked(walk, held, round(2 * WALK_SECONDS / TICK) + 10, start=(begin + 100) * TICK)

    assert union(slices)["backends"] == set(held["backends"])
    assert slices[-1] == {}
