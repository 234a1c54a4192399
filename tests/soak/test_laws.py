"""A right history violates no law; each planted violation is found by its law, and what is allowed is not."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from tests.soak.laws import (
    DNS_AFTER,
    FOLLOWS_AFTER,
    LAWS,
    LOSES_ANSWERS,
    LOSES_PACKETS,
    MAY_END,
    ROOM,
    violations,
)
from tests.soak.records import (
    ALIVE,
    EVERYWHERE,
    FRONTENDS,
    NO_NAME,
    Attempt,
    Beat,
    Deviation,
    End,
    Fault,
    Figure,
    Held,
    History,
    Leak,
    Lookup,
    Span,
)
from tests.soak.schedule import KINDS

VIEW, NAME = "10.96.0.1:80@node-1", "shop-1?"
LEFT_AT = 100.0
RIGHT = History(
    spans=(
        Span(FRONTENDS, VIEW, 0.0, 0.1),
        Span(VIEW, "stays", 0.0, 0.1),
        Span(VIEW, "leaves", 0.0, 0.1, LEFT_AT, LEFT_AT + 0.1),
        Span(ALIVE, "stays", 0.0, 0.1),
        Span(ALIVE, "leaves", 0.0, 0.1, LEFT_AT + 30.0, LEFT_AT + 30.1),
        Span("home@node-2", "stays", 0.0, 0.1),
        Span("home@node-2", "leaves", 0.0, 0.1),
        Span(NAME, "10.96.0.1", 0.0, 0.1, LEFT_AT, LEFT_AT + 0.1),
        Span(NAME, NO_NAME, LEFT_AT, LEFT_AT + 0.1),
    ),
    attempts=(Attempt("caller-1", "shop-1", (VIEW,), ("node-1",), 50.0, 50.1, "leaves"),),
    held=(Held("caller-1", ("node-1",), "leaves", 50.0, 129.0, 131.0, "ConnectionResetError"),),
    lookups=(Lookup("node-1", NAME, 50.0, 50.1, "10.96.0.1"), Lookup("node-1", NAME, 110.0, 110.1, NO_NAME)),
    beats=tuple(Beat(float(at), 1.0) for at in range(200)),
    figures=(Figure(1.0, "node-1", "elements", 40.0), Figure(190.0, "node-1", "elements", 40.0)),
)
LATE = Attempt("caller-1", "shop-1", (VIEW,), ("node-1",), 103.0, 103.1, "leaves")
SILENT = Attempt("caller-1", "shop-1", (VIEW,), ("node-1",), 110.0, 114.0, "", "TimeoutError")


@dataclass(frozen=True)
class Case:
    """What is added to a right history. law: what must find it; empty: nothing."""

    law: str
    attempts: Sequence[Attempt] = ()
    held: Sequence[Held] = ()
    lookups: Sequence[Lookup] = ()
    faults: Sequence[Fault] = ()
    leaks: Sequence[Leak] = ()
    figures: Sequence[Figure] = ()
    deviations: Sequence[Deviation] = ()
    spans: Sequence[Span] = ()
    ends: Sequence[End] = ()
    slowness: float = 1.0


def held(failure: str = "TimeoutError", pod: str = "stays") -> Held:
    return Held("caller-1", ("node-1",), pod, 50.0, 60.0, 75.0, failure)


CASES = {
    "nothing": Case(""),
    "a connection that ended although its pod lives": Case("established", held=[held()]),
    "one that the client closed": Case("", held=[held("")]),
    "one across a cut": Case("established", held=[held()], faults=[Fault("cut", "node-1", 59.0, 62.0)]),
    "one that a router spreads, across a cut": Case(
        "", held=[replace(held(), nodes=("node-1", "node-2"))], faults=[Fault("cut", "node-2", 59.0, 62.0)]
    ),
    "one whose plain tables were flushed": Case("", held=[held()], faults=[Fault("flush-plain", "node-1", 59.0, 62.0)]),
    "one whose pod ended": Case("", held=[held(pod="unknown")]),
    "a new connection to a pod that left two seconds ago": Case("reaches-valid", [LATE]),
    "half a second ago": Case("", [replace(LATE, began=100.6)]),
    "three seconds ago, on a machine four times slower": Case("", [LATE], slowness=4.0),
    "three seconds ago, and the agent was stopped meanwhile": Case(
        "", [LATE], faults=[Fault("agent-stop", "node-1", 99.0, 102.0)]
    ),
    "and the agent of another node was stopped": Case(
        "reaches-valid", [LATE], faults=[Fault("agent-stop", "node-2", 99.0, 102.0)]
    ),
    "and the server was away": Case("", [LATE], faults=[Fault("api-kill", EVERYWHERE, 99.0, 100.5)]),
    "and the server got no memory": Case("", [LATE], faults=[Fault("api-memory", EVERYWHERE, 99.0, 100.5)]),
    "and the DNS process got no memory, which costs only answers": Case(
        "reaches-valid", [LATE], faults=[Fault("dns-memory", "node-1", 99.0, 102.0)]
    ),
    "and etcd was stopped": Case("", [LATE], faults=[Fault("etcd-stop", EVERYWHERE, 99.0, 100.5)]),
    "and etcd had no space left": Case("", [LATE], faults=[Fault("etcd-space", EVERYWHERE, 99.0, 102.5)]),
    "and etcd had no space left, long before": Case(
        "reaches-valid", [LATE], faults=[Fault("etcd-space", EVERYWHERE, 90.0, 98.0)]
    ),
    "and the agent was stopped long before": Case(
        "reaches-valid", [LATE], faults=[Fault("agent-stop", "node-1", 80.0, 90.0)]
    ),
    "two faults in a row": Case(
        "",
        [replace(LATE, began=108.0, ended=108.1)],
        faults=[Fault("cut", "node-1", 95.0, 99.5), Fault("agent-kill", "node-1", 101.0, 106.0)],
    ),
    "a pod that the Service had before its port was changed": Case(
        "",
        [replace(LATE, views=("10.96.0.1:81@node-1",), began=100.9, ended=101.0)],
        spans=[Span("shop-1#", "leaves", 0.0, 0.1, 100.2, 100.3), Span(FRONTENDS, "10.96.0.1:81@node-1", 100.2, 100.3)],
    ),
    "a pod that is of no view": Case("reaches-valid", [replace(LATE, began=50.0, ended=50.1, pod="stranger")]),
    "a connection without an answer": Case("answered", [SILENT]),
    "one that began when an endpoint was new": Case("", [replace(SILENT, began=0.5, ended=0.6)]),
    "one while the node is cut off": Case("", [SILENT], faults=[Fault("cut", "node-1", 109.0, 111.0)]),
    "one while the node of its endpoint is cut off": Case("", [SILENT], faults=[Fault("cut", "node-2", 109.0, 111.0)]),
    "one while the agent is down, which costs nothing": Case(
        "answered", [SILENT], faults=[Fault("agent-kill", "node-1", 109.0, 111.0)]
    ),
    "one while the agent is upgraded, which costs nothing": Case(
        "answered", [SILENT], faults=[Fault("agent-upgrade", "node-1", 109.0, 111.0)]
    ),
    "one while the agent gets no memory, which costs nothing": Case(
        "answered", [SILENT], faults=[Fault("agent-memory", "node-1", 109.0, 111.0)]
    ),
    "one while etcd is down, which costs nothing": Case(
        "answered", [SILENT], faults=[Fault("etcd-kill", EVERYWHERE, 109.0, 111.0)]
    ),
    "one that may have gone to a pod that had just ended": Case(
        "", [replace(SILENT, began=100.7, ended=100.8)], spans=[Span(VIEW, "dead", 0.0, 0.0, 100.0, 100.1)]
    ),
    "an old answer": Case("fresh-names", lookups=[Lookup("node-1", NAME, 102.0, 102.1, "10.96.0.1")]),
    "an answer of two changes under way, in the other order": Case(
        "",
        lookups=[Lookup("node-1", "h?", 100.5, 100.6, "10.0.0.2")],
        spans=[Span("h?", "10.0.0.1 10.0.0.2", 0.0, 0.0, 100.0, 100.4), Span("h?", "10.0.0.2 10.0.0.3", 100.0, 100.4)],
    ),
    "an answer with an address that none of them has": Case(
        "fresh-names",
        lookups=[Lookup("node-1", "h?", 100.5, 100.6, "10.0.0.2 10.0.0.9")],
        spans=[Span("h?", "10.0.0.1 10.0.0.2", 0.0, 0.0, 100.0, 100.4), Span("h?", "10.0.0.2 10.0.0.3", 100.0, 100.4)],
    ),
    "an answer with the pods of the Service that had the name before it was headless": Case(
        "",
        lookups=[Lookup("node-1", "h?", 100.5, 100.6, "10.0.0.1 10.0.0.2")],
        spans=[
            Span("h=", "10.0.0.1 10.0.0.2", 0.0, 0.0, 100.0, 100.1),
            Span("h?", "10.96.0.9", 0.0, 0.0, 100.0, 100.1),
            *(Span(view, "10.0.0.2", 100.1, 100.2) for view in ("h=", "h?")),
        ],
    ),
    "an answer with pods where the name has an address": Case(
        "fresh-names",
        lookups=[Lookup("node-1", "h?", 100.5, 100.6, "10.0.0.1 10.0.0.2")],
        spans=[Span("h=", "10.0.0.1 10.0.0.2", 0.0, 0.0), Span("h?", "10.96.0.9", 0.0, 0.0)],
    ),
    "an old answer of half a second": Case("", lookups=[Lookup("node-1", NAME, 100.5, 100.6, "10.96.0.1")]),
    "an old answer of a process that was stopped": Case(
        "",
        lookups=[Lookup("node-1", NAME, 102.0, 102.1, "10.96.0.1")],
        faults=[Fault("dns-stop", "node-1", 99.0, 101.0)],
    ),
    "a query without an answer": Case("names-answered", lookups=[Lookup("node-1", NAME, 50.0, 53.0)]),
    "a query whose process was killed": Case(
        "", lookups=[Lookup("node-1", NAME, 50.0, 53.0)], faults=[Fault("dns-kill", "node-1", 49.0, 49.1)]
    ),
    "a query while the agent was upgraded, which costs nothing": Case(
        "names-answered",
        lookups=[Lookup("node-1", NAME, 50.0, 53.0)],
        faults=[Fault("agent-upgrade", "node-1", 49.0, 52.0)],
    ),
    "an agent that ended by itself": Case("stays-up", ends=[End(50.0, "agent", "node-1", "")]),
    "one that got no memory": Case(
        "", ends=[End(50.0, "agent", "node-1", "")], faults=[Fault("agent-memory", "node-1", 48.0, 49.0)]
    ),
    "one while the server got no memory": Case(
        "stays-up", ends=[End(50.0, "agent", "node-1", "")], faults=[Fault("api-memory", EVERYWHERE, 48.0, 51.0)]
    ),
    "one long after it got none": Case(
        "stays-up", ends=[End(55.0, "agent", "node-1", "")], faults=[Fault("agent-memory", "node-1", 48.0, 49.0)]
    ),
    "an etcd that ended by itself": Case("stays-up", ends=[End(50.0, "etcd", EVERYWHERE, "")]),
    "a packet that left untranslated": Case("nothing-left", leaks=[Leak(50.0, 50.4, "node-1", 3)]),
    "one while plain tables were away": Case(
        "", leaks=[Leak(50.0, 50.4, "node-1", 3)], faults=[Fault("flush-plain", "node-1", 49.9, 50.1)]
    ),
    "a kernel that is not as wanted": Case("as-wanted", deviations=[Deviation(190.0, "node-1", "diff: 3 elements")]),
    "elements that stay": Case("came-back", figures=[Figure(191.0, "node-1", "elements", 41.0)]),
    "descriptors within their room": Case(
        "", figures=[Figure(at, "node-1", "agent descriptors", value) for at, value in ((1.0, 30.0), (191.0, 36.0))]
    ),
    "descriptors beyond it": Case(
        "came-back",
        figures=[Figure(at, "node-1", "agent descriptors", value) for at, value in ((1.0, 30.0), (191.0, 60.0))],
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_a_planted_violation_is_found_by_its_law_alone(case: Case) -> None:
    history = replace(
        RIGHT,
        spans=(*RIGHT.spans, *case.spans),
        attempts=(*RIGHT.attempts, *case.attempts),
        held=(*RIGHT.held, *case.held),
        lookups=(*RIGHT.lookups, *case.lookups),
        faults=tuple(case.faults),
        leaks=tuple(case.leaks),
        ends=tuple(case.ends),
        figures=(*RIGHT.figures, *case.figures),
        deviations=tuple(case.deviations),
        beats=tuple(Beat(beat.at, case.slowness) for beat in RIGHT.beats),
    )
    assert [found.law for found in violations(history)] == ([case.law] if case.law else [])


def test_every_law_has_a_violation() -> None:
    assert {case.law for case in CASES.values() if case.law} == LAWS.keys() - {"exercised"}


def test_a_run_without_faults_proves_nothing() -> None:
    [found] = violations(History())
    assert (found.law, found.count) == ("exercised", 5)


def test_allowances_are_for_existing_faults() -> None:
    known = {*KINDS, "flush-plain"}
    may_end = {fault for faults in MAY_END.values() for fault in faults}
    assert (FOLLOWS_AFTER.keys() | DNS_AFTER.keys() | LOSES_PACKETS.keys() | LOSES_ANSWERS.keys() | may_end) <= known
    assert all(times >= 1 for times, _ in ROOM.values())
