"""Whether a history could have been: each rule yields what violates it, in one line. Pure.

Every write returns the revision at which the storage put it, so the order is known, and checking is comparing, not searching.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from tests.harness.history.records import (
    ABSENT,
    PRECONDITIONS,
    Fact,
    History,
    Increment,
    Read,
    Seen,
    Stream,
    Value,
    Write,
)

State = dict[str, Fact]


class Truth:
    """What the storage kept, by revision and by object."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = sorted(facts, key=lambda fact: fact.revision)
        self.of: defaultdict[str, list[Fact]] = defaultdict(list)
        self.by_text: defaultdict[str, list[Fact]] = defaultdict(list)
        for fact in self.facts:
            before = self.before(fact)
            self.of[fact.key].append(fact)
            for place, text in enumerate(fact.value or ()):
                if text and (before is None or before.value is None or before.value[place] != text):
                    self.by_text[text].append(fact)

    def at(self, key: str, revision: int) -> Fact | None:
        """The fact of the object that held at this revision, a deletion too; None before there was any."""
        found = self.of.get(key, [])
        place = bisect_right(found, revision, key=lambda fact: fact.revision)
        return found[place - 1] if place else None

    def before(self, fact: Fact) -> Fact | None:
        """What held right before it."""
        return self.at(fact.key, fact.revision - 1)

    def after(self, key: str, revision: int) -> Fact | None:
        """The next fact of the object beyond this revision."""
        found = self.of.get(key, [])
        place = bisect_right(found, revision, key=lambda fact: fact.revision)
        return found[place] if place < len(found) else None

    def state(self, revision: int) -> dict[str, tuple[int, Value]]:
        """What a list at this revision must hold."""
        found = {}
        for key in self.of:
            fact = self.at(key, revision)
            if fact is not None and fact.value is not None:
                found[key] = (fact.revision, fact.value)
        return found

    def between(self, since: int, until: int) -> list[Fact]:
        """The facts later than `since`, up to and with `until`."""
        start = bisect_right(self.facts, since, key=lambda fact: fact.revision)
        end = bisect_right(self.facts, until, key=lambda fact: fact.revision)
        return self.facts[start:end]


def violations(history: History, *, enough: int = 0, longest_seconds: float = 1e9) -> list[str]:
    """All of them, each a line. enough: writes that must succeed before, during and after each fault. longest_seconds: that
    a write may take to be answered."""
    truth = Truth(history.facts)
    return [
        *_writes(history.writes, truth),
        *_counters(history.increments, truth),
        *_order(history, truth),
        *_lists(history.reads, truth),
        *_objects(truth),
        *(line for stream in history.streams for line in _stream(stream, truth)),
        *_claims(truth),
        *_endings(history, truth),
        *_exercise(history, enough, longest_seconds),
    ]


def _writes(writes: Sequence[Write], truth: Truth) -> Iterator[str]:
    """What was acknowledged is there once, as it was written, at its revision; what was refused is not; what nobody knows of
    is there at most once; and who insisted on a revision changed that one."""
    for write in writes:
        name = f"{write.verb} {write.text} of {write.key} by {write.client} at {write.server}"
        if write.verb == "delete":
            continue
        found = truth.by_text.get(write.text, [])
        if len(found) > 1:
            yield f"{name}: written {len(found)} times, at {[fact.revision for fact in found]}"
        elif write.done and not found:
            yield f"{name}: acknowledged at {write.revision} and lost"
        elif write.done and (found[0].revision, found[0].key, found[0].value) != (
            write.revision,
            write.key,
            write.value,
        ):
            yield f"{name}: acknowledged as {write.value} at {write.revision}, kept as {found[0]}"
        elif write.status in PRECONDITIONS and found:
            yield f"{name}: refused with {write.status} and written at {found[0].revision}"
        for fact in found:
            yield from _step(name, write, fact, truth.before(fact))
    yield from _deletions([write for write in writes if write.verb == "delete"], truth)


def _step(name: str, write: Write, fact: Fact, before: Fact | None) -> Iterator[str]:
    """Whether the write follows from what was there."""
    there = before is not None and before.value is not None
    if write.verb == "create" and there:
        yield f"{name}: created at {fact.revision} over {before}"
    elif write.verb != "create" and not there:
        yield f"{name}: written at {fact.revision} where nothing was"
    elif write.expected is not None and before is not None and before.revision != write.expected:
        yield f"{name}: insisted on {write.expected} and changed {before.revision}: a lost update"
    elif write.verb == "patch" and before and before.value and fact.value and fact.value[0] != before.value[0]:
        yield f"{name}: undid {before.value[0]!r}, written at {before.revision}: a lost update"


def _counters(increments: Sequence[Increment], truth: Truth) -> Iterator[str]:
    """A counter ends at no less than was acknowledged, and at no more than that and what nobody knows of; one change was one
    client's, and replaced the revision that client insisted on."""
    of: defaultdict[str, list[Increment]] = defaultdict(list)
    for one in increments:
        of[one.key].append(one)
    for key, tried in of.items():
        acknowledged = [one for one in tried if one.done]
        unknown = sum(one.status is None for one in tried)
        last = truth.of[key][-1].value if truth.of.get(key) else None
        final = int(last[0]) if last is not None else 0
        if not len(acknowledged) <= final <= len(acknowledged) + unknown:
            yield f"{key} ends at {final}: {len(acknowledged)} increments were acknowledged, of {unknown} nobody knows"
        first: dict[int, Increment] = {}
        for one in acknowledged:
            name = f"increment of {key} to {one.count} by {one.client} at {one.server}"
            other = first.setdefault(one.revision, one)
            if other is not one:
                yield f"{name}: acknowledged at {one.revision}, as was that by {other.client} at {other.server}"
            fact = truth.at(key, one.revision)
            before = truth.before(fact) if fact is not None else None
            if fact is None or fact.revision != one.revision or fact.value is None or fact.value[0] != str(one.count):
                yield f"{name}: acknowledged at {one.revision}, kept was {fact}"
            elif before is None or before.revision != one.expected:
                yield f"{name}: insisted on {one.expected} and changed {before}: a lost update"


def _deletions(writes: Sequence[Write], truth: Truth) -> Iterator[str]:
    """Each names the revision it deletes. One deletion has one who did it."""
    of: defaultdict[tuple[str, int], list[Write]] = defaultdict(list)
    for write in writes:
        of[(write.key, write.expected or 0)].append(write)
    gone = {
        (fact.key, before.revision): fact
        for fact in truth.facts
        if fact.value is None and (before := truth.before(fact))
    }
    for (key, expected), same in of.items():
        acknowledged = [write for write in same if write.done]
        unknown = [write for write in same if write.status is None or write.status >= 500]
        if acknowledged and (key, expected) not in gone:
            yield f"delete of {key} at {expected} by {acknowledged[0].client}: acknowledged, and it was not deleted"
        if len(acknowledged) > 1:
            yield f"delete of {key} at {expected}: acknowledged to {len(acknowledged)} clients"
        if (key, expected) in gone and not acknowledged and not unknown:
            yield f"delete of {key} at {expected}: refused to all and carried out"
    for (key, expected), fact in gone.items():
        if (key, expected) not in of:
            yield f"{key} was deleted at {fact.revision}, and nobody asked for it"


def _order(history: History, truth: Truth) -> Iterator[str]:
    """What ended before another began came before it, at whichever servers."""
    known = [(write.ended, write.revision) for write in history.writes if write.done and write.revision]
    known += [(read.ended, read.revision) for read in history.reads if read.consistent and read.revision]
    acknowledged: list[tuple[float, int]] = []
    for ended, revision in sorted(known):
        acknowledged.append((ended, max(revision, acknowledged[-1][1] if acknowledged else 0)))
    for write in history.writes:
        floor = _known_before(acknowledged, write.began)
        if write.done and write.revision and write.revision <= floor and write.verb != "delete":
            yield f"{write.verb} {write.text} of {write.key} got {write.revision} after {floor} had been acknowledged"
    for read in history.reads:
        if read.consistent:
            yield from _fresh(read, _known_before(acknowledged, read.began), truth)


def _known_before(acknowledged: Sequence[tuple[float, int]], began: float) -> int:
    place = bisect_left(acknowledged, began, key=lambda entry: entry[0])
    return acknowledged[place - 1][1] if place else 0


def _fresh(read: Read, floor: int, truth: Truth) -> Iterator[str]:
    name = f"read of {read.key or 'all'} by {read.client} at {read.server}"
    if not read.key:
        if read.revision < floor:
            yield f"{name}: shows {read.revision} after {floor} had been acknowledged: stale"
        return
    found = read.items.get(read.key)
    if found is None:
        # There must have been a moment, not before the floor, when it did not exist.
        fact = truth.at(read.key, floor)
        moments = [fact, *(one for one in truth.of.get(read.key, []) if one.revision > floor)]
        if not any(one is None or one.value is None for one in moments):
            yield f"{name}: {ABSENT} while it was there since {fact.revision if fact else 0}"
        return
    kept = truth.at(read.key, found[0])
    if kept is None or (kept.revision, kept.value) != found:
        yield f"{name}: shows {found}, kept was {kept}"
    following = truth.after(read.key, found[0])
    if following is not None and following.revision <= floor:
        yield f"{name}: shows {found[0]}, replaced at {following.revision}, after {floor} had been acknowledged: stale"


def _lists(reads: Sequence[Read], truth: Truth) -> Iterator[str]:
    """A list is the truth at its revision; what one server shows without being asked for the latest never goes back."""
    shown: dict[str, list[Read]] = defaultdict(list)
    for read in reads:
        if read.key:
            continue
        if read.items != (state := truth.state(read.revision)):
            wrong = sorted(key for key in read.items.keys() | state.keys() if read.items.get(key) != state.get(key))
            first = wrong[0]
            yield (
                f"list by {read.client} at {read.server}: at {read.revision} {first} is {read.items.get(first)}, "
                f"kept was {state.get(first)} ({len(wrong)} differ)"
            )
        shown[read.server].append(read)
    for server, of_one in shown.items():
        latest, open_reads = 0, sorted(of_one, key=lambda read: read.ended)
        ended = 0
        for read in sorted(of_one, key=lambda read: read.began):
            while ended < len(open_reads) and open_reads[ended].ended < read.began:
                latest = max(latest, open_reads[ended].revision)
                ended += 1
            if read.revision < latest:
                yield f"{server} went back: showed {latest}, then {read.revision}"


def _objects(truth: Truth) -> Iterator[str]:
    """An object that comes again is another one."""
    for key, facts in truth.of.items():
        if facts[0].value is None:
            yield f"{key}: deleted at {facts[0].revision} before it was there"
        uids = []
        for before, fact in pairwise([None, *facts]):
            if fact is None or fact.value is None:
                continue
            fresh = before is None or before.value is None
            if fresh:
                if fact.uid and fact.uid in uids:
                    yield f"{key}: has the uid of one that was deleted, at {fact.revision}"
                uids.append(fact.uid)
            elif before is not None and fact.uid != before.uid:
                yield f"{key}: another uid at {fact.revision} without a deletion"


def _stream(stream: Stream, truth: Truth) -> Iterator[str]:
    """Every change once and in order, none left out up to the last event or bookmark."""
    position, acknowledged = stream.since, stream.since
    heard: set[tuple[str, int]] = set()
    for event in stream.events:
        name = f"watch of {stream.watcher}: {event.kind} {event.key} at {event.revision}"
        if event.revision < position:
            yield f"{name} after {position}"
        position = max(position, event.revision)
        if event.kind == "BOOKMARK":
            acknowledged = max(acknowledged, event.revision)
            continue
        if event.revision <= acknowledged:
            yield f"{name}: not later than {acknowledged}, from where it was asked for, or which a bookmark had said"
        if (event.key, event.revision) in heard:
            yield f"{name}: twice"
        heard.add((event.key, event.revision))
        yield from _event(name, event, truth)
    for fact in truth.between(stream.since, position):
        if (fact.key, fact.revision) not in heard:
            yield f"watch of {stream.watcher}: {fact.key} at {fact.revision} left out, between {stream.since} and {position}"


def _event(name: str, event: Seen, truth: Truth) -> Iterator[str]:
    fact = truth.at(event.key, event.revision)
    if fact is None or fact.revision != event.revision:
        yield f"{name}: never happened"
        return
    before = truth.before(fact)
    was_there = before is not None and before.value is not None
    expected = "DELETED" if fact.value is None else "MODIFIED" if was_there else "ADDED"
    if event.kind != expected:
        yield f"{name}: should be {expected}"
    last = before.value if fact.value is None and before is not None else fact.value
    if event.value != last:
        yield f"{name}: shows {event.value}, not {last}"


def _claims(truth: Truth) -> Iterator[str]:
    """No address and no port is held by two at any revision."""
    holder: dict[str, str] = {}
    held: dict[str, frozenset[str]] = {}
    for fact in truth.facts:
        for claim in held.get(fact.key, frozenset()) - fact.claims:
            if holder.get(claim) == fact.key:
                del holder[claim]
        for claim in fact.claims:
            other = holder.setdefault(claim, fact.key)
            if other != fact.key:
                yield f"{claim} is held by {other} and, at {fact.revision}, by {fact.key}"
        held[fact.key] = fact.claims


@dataclass(frozen=True, slots=True)
class Holding:
    """From a revision on a Service (`key`) has these addresses and ports, or they are what a record of them says is taken."""

    revision: int
    key: str
    held: frozenset[str]
    recorded: bool


def disagreements(holdings: Sequence[Holding]) -> Iterator[str]:
    """At each revision what services have is recorded, each once, and nothing else is."""
    now: dict[bool, dict[str, frozenset[str]]] = {True: {}, False: {}}
    for revision, changes in groupby(holdings, lambda one: one.revision):
        for change in changes:
            now[change.recorded][change.key] = change.held
        had = [claim for held in now[False].values() for claim in held]
        recorded = {claim for held in now[True].values() for claim in held}
        for claim in sorted({claim for claim in had if had.count(claim) > 1}):
            yield f"at {revision} {claim} is had by two Services"
        for claim in sorted(recorded.symmetric_difference(had)):
            yield f"at {revision} {claim} is {'recorded, and nobody has it' if claim in recorded else 'had, and not recorded'}"


def _endings(history: History, truth: Truth) -> Iterator[str]:
    """In the end all servers show what was kept."""
    kept = truth.state(truth.facts[-1].revision) if truth.facts else {}
    for server, shown in history.finals.items():
        for key in sorted(shown.keys() | kept.keys()):
            if shown.get(key) != kept.get(key):
                yield f"in the end {server} shows {key} as {shown.get(key)}, kept was {kept.get(key)}"


def _exercise(history: History, enough: int, longest_seconds: float) -> Iterator[str]:
    """A run in which little succeeded, or nobody was disturbed, shows nothing."""
    done = [write for write in history.writes if write.done]
    edges = [0.0, *(fault.began for fault in history.faults), float("inf")]
    for n, fault in enumerate(history.faults):
        spans = {
            "before": (edges[n], fault.began),
            "from it on": (fault.began, edges[n + 2]),
        }
        for when, (start, end) in spans.items():
            count = sum(start <= write.began and write.ended <= end for write in done)
            if count < enough:
                yield f"{fault.what}: {count} writes succeeded {when}, fewer than {enough}: the run shows nothing"
    for write in history.writes:
        if write.done and write.ended - write.began > longest_seconds:
            yield f"{write.verb} {write.text}: answered after {write.ended - write.began:.1f} s"
