"""What we believe that the kernel holds, computed from a read-back (pure)."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from enum import Enum

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.readback import TableDeviation, chain_deviation, same_set
from nodeagent.proxy.dataplane.image.image import ReadableImage, TableImage, class_of, empty_image
from nodeagent.proxy.dataplane.image.render import EndpointLists
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Hook, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass, pick_class
from nodeagent.proxy.dataplane.program.program import build_program, verdict_elements
from nodeagent.proxy.dataplane.program.schema import DATA_SETS, SetSpec
from nodeagent.wire.netlink.nf_tables.expressions import Code
from nodeagent.wire.netlink.nf_tables.ruleset_objects import KernelRule, SetHeader, TableHeader
from nodeagent.wire.netlink.uapi.nf_tables import NFT_TABLE_F_DORMANT, NFT_TABLE_F_OWNER, NFT_TABLE_F_PERSIST

LearnedAffinity = dict[bytes, tuple[bytes, int, int]]
"""Key → (endpoint, timeout ms, remaining ms)."""


class Ownership(Enum):
    """Whether the kernel protects the table (owner and persist flags, Linux 6.9), or it is an ordinary one."""

    OWNED = "owned"
    PLAIN = "plain"


@dataclass(slots=True)
class Contents:
    """Everything read from a table.

    verdicts: verdict map → key → chain. policies: chain → its verdict's number.
    sampled: sets of which only some elements were read, and found as believed.
    catch_all: a set with an element that matches every other key; empty if there is no such set.
    flowtables: flowtable → its devices. An outline has none: a rule that adds connections to one shows that it exists.
    lists: lists of endpoints in `image` that were read one after the other.
    """

    header: TableHeader
    sets: dict[str, SetHeader] = field(default_factory=dict)
    hooks: dict[str, Hook | None] = field(default_factory=dict)
    rules: dict[str, list[KernelRule]] = field(default_factory=dict)
    image: TableImage = field(default_factory=dict)
    verdicts: dict[str, dict[bytes, str]] = field(default_factory=dict)
    counters: dict[str, dict[bytes, tuple[int, int]]] = field(default_factory=dict)
    policies: dict[str, int] = field(default_factory=dict)
    sampled: set[str] = field(default_factory=set)
    catch_all: str = ""
    flowtables: dict[str, frozenset[str]] = field(default_factory=dict)
    lists: dict[bytes, list[bytes]] = field(default_factory=dict, compare=False)

    def fits(self, specs: Mapping[str, SetSpec], family: Family) -> bool:
        """Returns whether the table is in force and has exactly our sets, of this schema, without a catch-all element."""
        return self.misfit(specs, family) is None

    def misfit(self, specs: Mapping[str, SetSpec], family: Family) -> TableDeviation | None:
        """Returns why the table does not fit; None: it does."""
        if self.header.flags & NFT_TABLE_F_DORMANT:
            return TableDeviation("table", "it is dormant")
        if self.catch_all:
            return TableDeviation("elements", f"{self.catch_all} has an element for every key")
        if not self.header.comment.startswith(schema.COMMENT_PREFIX):
            return TableDeviation("table", "it is of another schema")
        named = {name for name in self.sets if not name.startswith("__")}
        for name in sorted(named ^ set(specs)):
            return TableDeviation("sets", f"set {name} is {'gone' if name in specs else 'not ours'}")
        changed = (name for name, spec in specs.items() if not same_set(self.sets[name], spec, family))
        return next((TableDeviation("sets", f"set {name} is of another type") for name in changed), None)


@dataclass(slots=True)
class Belief:
    """The table as far as it is known.

    exists: there is a table of our name. usable: it has our schema and ownership, so only differences are written.
    claimed: this process's socket has claimed it. program_right: chains and rules are what they should be.
    classes, timeouts: pick and learn chains that exist; added when first needed, removed a while after they were last needed.
    flowtables: the flowtables that exist.
    affinity: what a new table in its place shall contain, key → (endpoint, timeout ms, remaining ms).
    lists: lists of endpoints in an image that was read.
    """

    image: ReadableImage
    exists: bool = False
    usable: bool = False
    claimed: bool = False
    program_right: bool = False
    handle: int = 0
    classes: set[PickClass] = field(default_factory=set)
    timeouts: set[int] = field(default_factory=set)
    chains: frozenset[str] = frozenset()
    flowtables: frozenset[str] = frozenset()
    verdicts: dict[str, dict[bytes, str]] = field(default_factory=dict)
    affinity: LearnedAffinity = field(default_factory=dict)
    lists: EndpointLists = field(default_factory=dict)

    @property
    def is_intact(self) -> bool:
        """Whether everything except the services' elements is as it should be, so that a look can show whether it still is."""
        return self.exists and self.usable and self.program_right


def belief_from(
    contents: Contents | None,
    specs: Mapping[str, SetSpec],
    family: Family,
    options: ProgramOptions,
    ownership: Ownership,
) -> Belief:
    """Returns the belief that follows from a table that was read. contents: None if there is no table."""
    if contents is None:
        return Belief(empty_image(DATA_SETS))
    owned = bool(contents.header.flags & (NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST))
    fits = contents.fits(specs, family)
    belief = Belief(
        contents.image if fits else empty_image(DATA_SETS),
        exists=True,
        # A plain table cannot become an owned one, nor the other way round (nf_tables_updtable).
        usable=fits and owned == (ownership is Ownership.OWNED),
        handle=contents.header.handle,
        chains=frozenset(contents.hooks),
        flowtables=frozenset(contents.flowtables),
        verdicts=contents.verdicts,
        lists=contents.lists,
    )
    if not fits:
        return belief
    belief.classes = {
        pick for key in contents.verdicts[schema.DISPATCH] if (pick := pick_class(class_of(key))) is not None
    }
    belief.timeouts = {class_of(key) for key in contents.verdicts[schema.LEARN]}
    belief.program_right = (
        contents.verdicts == verdict_elements(belief.classes, belief.timeouts)
        and belief.flowtables == ({schema.FLOWTABLE} if options.flowtable else set())
        and program_matches(contents, family, options, belief)
    )
    return belief


def program_matches(contents: Contents, family: Family, options: ProgramOptions, belief: Belief) -> bool:
    """Returns whether chains and rules are exactly those of the program for the chains in use."""
    return program_deviation(contents, family, options, belief) is None


def program_deviation(
    contents: Contents, family: Family, options: ProgramOptions, belief: Belief
) -> TableDeviation | None:
    """Returns the first difference of chains and rules from those of the program for the chains in use; None: they are equal."""
    for name, policy in contents.policies.items():
        if policy != Code.ACCEPT:
            return TableDeviation("chains", f"chain {name} does not accept by default")
    program = build_program(family, options, belief.classes, belief.timeouts)
    return chain_deviation(program.chains, contents.hooks, contents.rules)


def outline_deviation(
    contents: Contents | None, specs: Mapping[str, SetSpec], family: Family, options: ProgramOptions, belief: Belief
) -> TableDeviation | None:
    """Returns how the table differs from what is believed, judged by an outline: by elements if it has them, else by their number;
    None if it does not.

    Elements of which only a sample or the number is known may have other values: `ElementWalk` finds those.
    """
    if contents is None:
        return TableDeviation("table", "it is gone")
    if contents.header.handle != belief.handle:
        return TableDeviation("table", "another one has its place")
    if (misfit := contents.misfit(specs, family)) is not None:
        return misfit
    wanted: dict[str, Sized] = {**belief.image, **verdict_elements(belief.classes, belief.timeouts)}
    found: dict[str, Sized] = {**contents.image, **contents.verdicts}
    for name, elements in wanted.items():
        if name in found:
            if found[name] != elements:
                return TableDeviation(
                    "elements", f"{name} has {len(found[name])} elements, or others; it should have {len(elements)}"
                )
            continue
        if name not in contents.sampled and (count := contents.sets[name].count) != len(elements):
            return TableDeviation("elements", f"{name} has {count} elements, not {len(elements)}")
    return program_deviation(contents, family, options, belief)
