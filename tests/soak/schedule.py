"""The steps of a run, from a seed. Pure: the same seed gives the same steps.

Each step means the same whatever was done before, so that any part of a schedule is a schedule.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.soak.records import EVERYWHERE, Step

SLOTS = tuple(f"shop-{number}" for number in range(1, 6))
"""The names of Services that come and go; `echo` always stays."""
MOST_CHOICE = 1 << 16
BRIEF = (0.5, 3.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """nodes: names. quick: only faults that are over after a second or two. clocks, disk, etcd: whether the lab can do that
    or has that."""

    nodes: Sequence[str]
    quick: bool = False
    clocks: bool = False
    disk: bool = False
    etcd: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """How often a step is chosen, what it is done to (`node`, `slot` or nothing), how long it lasts, and whether it is too slow for
    a quick run."""

    weight: float
    of: str = ""
    lasts: tuple[float, float] = (0.0, 0.0)
    slow: bool = False


KINDS = {
    "service": Kind(14, "slot"),
    "service-delete": Kind(5, "slot"),
    "pod-add": Kind(5, "node"),
    "pod-remove": Kind(5, "node", BRIEF),
    "pod-unready": Kind(8, "node", (1.5, 5.0)),
    "pod-leave": Kind(4, "node", (1.5, 5.0)),
    "others-table": Kind(3, "node", (1.0, 5.0)),
    "flush": Kind(2, "node"),
    "dns-kill": Kind(2, "node"),
    "dns-stop": Kind(1, "node", BRIEF, slow=True),
    "agent-kill": Kind(3, "node", BRIEF),
    "agent-stop": Kind(3, "node", BRIEF),
    "agent-restart": Kind(3, "node", slow=True),
    "agent-upgrade": Kind(2, "node", (0.3, 2.0), slow=True),
    "agent-descriptors": Kind(1.5, "node", BRIEF, slow=True),
    "agent-memory": Kind(1.5, "node", BRIEF, slow=True),
    "dns-memory": Kind(1.5, "node", BRIEF, slow=True),
    "cut": Kind(2, "node", (0.5, 2.5), slow=True),
    "api-kill": Kind(1.5, "", BRIEF, slow=True),
    "api-stop": Kind(1.5, "", BRIEF, slow=True),
    "api-restart": Kind(1.5, "", slow=True),
    "api-descriptors": Kind(1, "", BRIEF, slow=True),
    "api-memory": Kind(1.5, "", BRIEF, slow=True),
    "etcd-kill": Kind(1.5, "", BRIEF, slow=True),
    "etcd-stop": Kind(1.5, "", BRIEF, slow=True),
    "etcd-restart": Kind(1.5, "", slow=True),
    "etcd-space": Kind(1, "", BRIEF, slow=True),
    "clock": Kind(1.5, EVERYWHERE, (2.0, 6.0)),
    "disk": Kind(1, "", BRIEF, slow=True),
}
LEAST_PAUSE, MOST_PAUSE = 0.1, 1.3


def schedule(seed: str, seconds: float, shape: Shape) -> tuple[Step, ...]:
    """Returns steps whose pauses are together at most so many seconds."""
    chance = random.Random(seed)
    return tuple(_steps(chance, seconds, shape))


def _steps(chance: random.Random, seconds: float, shape: Shape) -> Iterator[Step]:
    can = {"clock": shape.clocks, "disk": shape.disk, "etcd": shape.etcd}
    possible = {
        name: kind
        for name, kind in KINDS.items()
        if not (shape.quick and kind.slow) and can.get(name.partition("-")[0], True)
    }
    names, weights = list(possible), [kind.weight for kind in possible.values()]
    at = 0.0
    while True:
        pause = round(chance.uniform(LEAST_PAUSE, MOST_PAUSE), 2)
        at += pause
        if at > seconds:
            return
        [name] = chance.choices(names, weights)
        kind = possible[name]
        where = {"node": chance.choice(list(shape.nodes)), "slot": chance.choice(SLOTS), EVERYWHERE: EVERYWHERE}.get(
            kind.of, ""
        )
        lasts = round(chance.uniform(*kind.lasts), 2)
        yield Step(name, where, pause, lasts, chance.randrange(MOST_CHOICE))
