"""What must hold of a history: each law yields what violates it, one line each. Pure.

The laws allow for what a part cannot do: a node that is cut off, or whose agent is stopped, cannot follow; a packet that a fault drops is
lost. What is allowed is in the tables here, in seconds of an idle machine; the history says how much slower this one was.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.soak.offers import service_view, slices_view
from tests.soak.records import ALIVE, EVERYWHERE, FRONTENDS, NO_ADDRESS, NO_NAME, Attempt, Fault, History, Lookup, Span

FOLLOW_SECONDS = 1.0
"""A change is in effect on every node, and in every answer of DNS."""
FOLLOWS_AFTER = {
    "api-kill": 5.0,
    "api-stop": 5.0,
    "api-restart": 5.0,
    "api-descriptors": 5.0,
    "api-memory": 5.0,
    "etcd-kill": 5.0,
    "etcd-stop": 5.0,
    "etcd-restart": 5.0,
    "etcd-space": 3.0,
    "disk": 3.0,
    "clock": 2.0,
    "cut": 5.0,
    "agent-kill": 2.0,
    "agent-stop": 2.0,
    "agent-restart": 2.0,
    "agent-upgrade": 2.0,
    "agent-descriptors": 4.0,
    "agent-memory": 4.0,
    "flush-plain": 3.0,
}
"""Fault → seconds from its end until the node follows again. Until then what held before it is allowed."""
DNS_AFTER = {"dns-kill": 3.0, "dns-stop": 3.0, "dns-memory": 3.0}
"""The same for answers of DNS, of faults that do not keep the node from following."""
LOSES_PACKETS = {"cut": 3.0, "flush-plain": 3.0}
"""Fault → seconds from its end until no packet of a new connection is lost on the node any more."""
LOSES_ANSWERS = {
    **DNS_AFTER,
    **LOSES_PACKETS,
    "agent-descriptors": 3.0,
    "agent-kill": 3.0,
    "agent-memory": 3.0,
    "agent-restart": 3.0,
    "agent-stop": 3.0,
}
BREAKS_CONNECTIONS = {"flush-plain": 3.0}
"""Where the plain tables of a node are flushed, the kernel translates no packet until they are there again."""
MAY_END = {"agent": {"agent-memory": 2.0}, "server": {"api-memory": 2.0}}
"""Program → fault → seconds from its end until the program may end because of it. It is started again."""
MOVES_FLOWS = BREAKS_CONNECTIONS | {"cut": 3.0}
"""A router that spreads the flows of an address over several nodes gives those of a node that is cut off to another one."""
SLOW_BEFORE, SLOW_AFTER, FEW_BEATS = 4.0, 1.0, 4
"""Seconds around a time in which it counts how slow the machine was."""
MOST_LINES, LONGEST = 8, 400


class Times:
    """What is asked of a history often: spans by view, faults by node, the factor at a time."""

    def __init__(self, history: History) -> None:
        self.of_view: defaultdict[str, list[Span]] = defaultdict(list)
        for span in history.spans:
            self.of_view[span.view].append(span)
        self._faults = history.faults
        self._beats = sorted((beat.at, beat.factor) for beat in history.beats)

    def slowness(self, since: float, until: float) -> float:
        """The mean of what was measured from some seconds before; at least 1, and the largest of four if there are so few."""
        place = bisect_left(self._beats, (since - SLOW_BEFORE, 0.0))
        end = bisect_left(self._beats, (until + SLOW_AFTER, 0.0))
        found = [factor for _, factor in self._beats[place:end]] or [1.0]
        return max(1.0, sum(found) / len(found) if len(found) >= FEW_BEATS else max(found))

    def faults(self, kinds: Iterable[str], nodes: Iterable[str]) -> Iterator[Fault]:
        """Those of these kinds that concern one of these nodes."""
        chosen, places = set(kinds), {*nodes, EVERYWHERE}
        return (fault for fault in self._faults if fault.kind in chosen and fault.where in places)

    def lossy(self, allowed: dict[str, float], nodes: Iterable[str], since: float, until: float) -> bool:
        """Whether a fault may have lost something of these nodes in this time."""
        slow = self.slowness(since, until)
        return any(
            fault.began <= until and fault.ended + allowed[fault.kind] * slow >= since
            for fault in self.faults(allowed, nodes)
        )

    def followed_since(self, nodes: Iterable[str], at: float, more: dict[str, float] | None = None) -> float:
        """Since when the nodes may not have followed, as seen at a time."""
        allowed = FOLLOWS_AFTER | (more or {})
        since = at - FOLLOW_SECONDS * self.slowness(at, at)
        faults = sorted(self.faults(allowed, nodes), key=lambda fault: -fault.ended)
        changed = True
        while changed:
            changed = False
            for fault in faults:
                late = allowed[fault.kind] * self.slowness(fault.began, fault.ended)
                if (
                    fault.began < at
                    and fault.ended + late >= since
                    and (earlier := fault.began - FOLLOW_SECONDS * self.slowness(fault.began, fault.began)) < since
                ):
                    since, changed = earlier, True
        return since

    def may(self, view: str, since: float, until: float) -> set[str]:
        """Who may have been a member at some instant."""
        return {span.member for span in self.of_view[view] if span.may_from <= until and span.may_until >= since}

    def surely(self, view: str, since: float, until: float) -> set[str]:
        """Who was a member all the time."""
        return {span.member for span in self.of_view[view] if span.sure_from <= since and span.sure_until >= until}


def established(history: History, times: Times) -> Iterator[str]:
    """An established connection lives as long as its endpoint."""
    for one in history.held:
        if not one.failure or not times.surely(ALIVE, one.opened, one.ended) & {one.pod}:
            continue
        allowed = MOVES_FLOWS if len(one.nodes) > 1 else BREAKS_CONNECTIONS
        if not times.lossy(allowed, one.nodes, one.opened, one.ended):
            yield (
                f"{one.client} lost its connection to {one.pod}, which lives: {one.failure}; open since {one.opened:.2f}, last "
                f"answer {one.heard:.2f}, lost {one.ended:.2f}"
            )


def reaches_valid(history: History, times: Times) -> Iterator[str]:
    """A new connection goes only to an endpoint that was valid at some instant of the last second."""
    for one in history.attempts:
        if not one.pod:
            continue
        since = times.followed_since(one.nodes, one.began)
        valid = set[str]().union(*(times.may(view, since, one.ended) for view in one.views))
        if not times.surely(FRONTENDS, since, one.began).issuperset(one.views):
            valid |= times.may(service_view(one.service), since, one.ended)  # its slices follow later
        if one.pod not in valid:
            yield _landed(one, since, valid)


def _landed(one: Attempt, since: float, valid: set[str]) -> str:
    return (
        f"{one.client} reached {one.pod} at {one.began:.2f} by {one.views[0]}, which had {', '.join(sorted(valid)) or 'nobody'} "
        f"since {since:.2f}"
    )


def answered(history: History, times: Times) -> Iterator[str]:
    """A new connection succeeds where every node has had an endpoint all the time, and every possible endpoint lives."""
    homes = {span.member: span.view.partition("@")[2] for span in history.spans if span.view.startswith("home@")}
    for one in history.attempts:
        if not one.failure:
            continue
        since = times.followed_since(one.nodes, one.began)
        if not all(times.surely(view, since, one.ended) for view in one.views):
            continue
        possible = set[str]().union(*(times.may(view, since, one.ended) for view in one.views))
        if possible - times.surely(ALIVE, one.began, one.ended):
            continue
        nodes = {*one.nodes, *(homes[pod] for pod in possible if pod in homes)}
        if not times.lossy(LOSES_PACKETS, nodes, one.began, one.ended):
            yield (
                f"{one.client} got no answer from {one.views[0]} at {one.began:.2f} ({one.failure} after "
                f"{one.ended - one.began:.2f} s): it had {', '.join(sorted(possible))}"
            )


def fresh_names(history: History, times: Times) -> Iterator[str]:
    """No answer of DNS is older than a second."""
    for one in history.lookups:
        if one.answer:
            since = times.followed_since((one.node,), one.began, DNS_AFTER)
            valid = times.may(one.view, since, one.ended)
            if len(valid) > 1:
                valid.add(NO_ADDRESS)  # a headless Service that is new has its slices later
            slices = times.may(slices_view(one.view.removesuffix("?")), since, one.ended)
            if valid & slices:
                valid |= slices  # or still those of the Service before it, which was not headless
            if valid and one.answer not in valid and not _is_between(one.answer, valid):
                yield _old(one, since, valid)


def _is_between(answer: str, valid: set[str]) -> bool:
    """Whether an answer has the addresses that all of several have, and no others than theirs: changes that were under way at the
    same time may take effect in any order."""
    lists = [set(one.split()) for one in valid - {NO_NAME, NO_ADDRESS}]
    if len(lists) < 2 or answer in (NO_NAME, NO_ADDRESS):
        return False
    return set.intersection(*lists) <= set(answer.split()) <= set.union(*lists)


def _old(one: Lookup, since: float, valid: set[str]) -> str:
    return f"{one.node} answered {one.view} with {one.answer} at {one.ended:.2f}; since {since:.2f} it is {' or '.join(sorted(valid))}"


def names_answered(history: History, times: Times) -> Iterator[str]:
    """Every query is answered, unless a fault concerns the node."""
    for one in history.lookups:
        if not one.answer and not times.lossy(LOSES_ANSWERS, (one.node,), one.began, one.ended):
            yield f"{one.node} did not answer {one.view}, asked at {one.began:.2f}, until {one.ended:.2f}"


def nothing_left(history: History, times: Times) -> Iterator[str]:
    """No packet to a ClusterIP leaves a node."""
    for one in history.leaks:
        if not times.lossy(BREAKS_CONNECTIONS, (one.node,), one.since, one.at):
            of = f" ({'; '.join(one.flows)})" if one.flows else ""
            yield f"{one.packets} packets to ClusterIPs left {one.node} untranslated between {one.since:.2f} and {one.at:.2f}{of}"


def as_wanted(history: History, times: Times) -> Iterator[str]:
    """After quiet the kernel has what is desired on every node."""
    for one in history.deviations:
        yield f"{one.node} at {one.at:.2f}, after quiet: {one.text}"


ROOM = {
    "elements": (1.0, 0.0),
    "chains": (1.0, 600.0),
    "affinity": (1.0, 0.0),
    "conntrack": (1.5, 150.0),
    "agent memory": (1.3, 24 << 20),
    "agent descriptors": (1.0, 8.0),
    "agent threads": (1.0, 6.0),
    "dns memory": (1.3, 24 << 20),
    "dns descriptors": (1.0, 8.0),
    "server memory": (1.5, 48 << 20),
    "server descriptors": (1.0, 12.0),
}
"""Figure → how many times the first value, and how much more, it may be at the end. A chain of a class stays for two minutes and until the
next pass (docs/dataplane.md), and there are only so many classes; what is idle has been asked less than what was busy."""


def stays_up(history: History, times: Times) -> Iterator[str]:
    """A program ends by itself only where it got no memory."""
    for one in history.ends:
        if not times.lossy(MAY_END.get(one.program, {}), (one.where,), one.at, one.at):
            yield f"the {one.program} of {one.where} ended by itself at {one.at:.2f}: {one.words}"


def came_back(history: History, times: Times) -> Iterator[str]:
    """What a node has at the end is what it had at the beginning."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for one in sorted(history.figures, key=lambda figure: figure.at):
        found[(one.node, one.name)].append(one.value)
    for (node, name), values in found.items():
        times_first, more = ROOM[name]
        if len(values) > 1 and values[-1] > values[0] * times_first + more:
            yield f"{name} of {node}: {values[0]:.0f} before, {values[-1]:.0f} after"


def exercised(history: History, times: Times) -> Iterator[str]:
    """A run in which nothing was done shows nothing."""
    for name, count in (
        ("new connection was answered", sum(1 for one in history.attempts if one.pod)),
        ("connection was held", len(history.held)),
        ("query was answered", sum(1 for one in history.lookups if one.answer)),
        ("figure was measured", len(history.figures)),
        ("beat was measured", len(history.beats)),
    ):
        if not count:
            yield f"no {name}"


Law = Callable[[History, Times], Iterator[str]]
LAWS: dict[str, Law] = {
    "established": established,
    "reaches-valid": reaches_valid,
    "answered": answered,
    "fresh-names": fresh_names,
    "names-answered": names_answered,
    "nothing-left": nothing_left,
    "as-wanted": as_wanted,
    "stays-up": stays_up,
    "came-back": came_back,
    "exercised": exercised,
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A law, how often it was violated, and the first lines about it."""

    law: str
    count: int
    lines: Sequence[str]


def violations(history: History) -> list[Violation]:
    """Every law that the history violates."""
    times = Times(history)
    found = []
    for name, law in LAWS.items():
        if lines := list(law(history, times)):
            found.append(Violation(name, len(lines), [line[:LONGEST] for line in lines[:MOST_LINES]]))
    return found
