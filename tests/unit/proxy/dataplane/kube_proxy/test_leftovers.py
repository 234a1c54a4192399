"""Places are looked at and emptied in order; one that fails does not stop the others."""

from dataclasses import dataclass, field

import pytest

from nodeagent.proxy.dataplane.errors import NotPermitted
from nodeagent.proxy.dataplane.kube_proxy.leftovers import Finding, LeftoverError, sweep


@dataclass
class Shelf:
    """A place with things on it; `broken`: what looking raises, `stuck`: what removing raises."""

    name: str
    things: tuple[str, ...] = ()
    broken: Exception | None = None
    stuck: Exception | None = None
    looked: list[str] = field(default_factory=list)

    def look(self) -> Finding:
        self.looked.append(self.name)
        if self.broken:
            raise self.broken
        return Finding(self.things, tuple(f"{thing} is odd" for thing in self.things), self._empty)

    def _empty(self) -> None:
        if self.stuck:
            raise self.stuck
        self.things = ()


def test_a_dry_run_tells_and_leaves_everything() -> None:
    shelves = [Shelf("a", ("one", "two")), Shelf("b"), Shelf("c", ("three",))]

    result = sweep(shelves, dry_run=True)

    assert result.leftovers == ("a one", "a two", "c three")
    assert result.notes == ("a one is odd", "a two is odd", "c three is odd")
    assert [shelf.things for shelf in shelves] == [("one", "two"), (), ("three",)]


def test_a_run_removes_what_a_dry_run_listed_and_a_second_run_nothing() -> None:
    shelves = [Shelf("a", ("one", "two")), Shelf("c", ("three",))]
    reported = sweep(shelves, dry_run=True).leftovers

    assert sweep(shelves, dry_run=False).leftovers == reported
    assert sweep(shelves, dry_run=False).leftovers == ()


@pytest.mark.parametrize(
    "error", [NotPermitted("no capability"), LeftoverError("no such program"), PermissionError(1, "not permitted")]
)
@pytest.mark.parametrize("while_looking", [True, False], ids=["while looking", "while removing"])
def test_a_place_that_fails_is_reported_and_the_others_are_emptied(while_looking: bool, error: Exception) -> None:
    first, last = Shelf("first", ("one",)), Shelf("last", ("two",))
    middle = Shelf("middle", ("three",), broken=error if while_looking else None, stuck=error)

    result = sweep([first, middle, last], dry_run=False)

    assert result.leftovers == ("first one", "last two")
    assert [(item.place, item.error) for item in result.failed] == [("middle", error)]
    assert first.things == last.things == ()


def test_a_place_is_looked_at_after_the_one_before_is_empty() -> None:
    """A set can be destroyed only when no rule uses it any more."""
    rules = Shelf("rules", ("rule",))

    class Sets(Shelf):
        def look(self) -> Finding:
            return Finding(("set",) if rules.things else ("free set",))

    assert sweep([rules, Sets("sets")], dry_run=False).leftovers == ("rules rule", "sets free set")
