"""Reads our whole table of one family: rules, elements, learned affinity."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from nodeagent.diagnosis.trace.own_table import OwnTable, own_table
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable, present_specs
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, repeated, typed_errors
from nodeagent.proxy.dataplane.errors import DataplaneError, KernelUnclear
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables.element_reading import read_elements
from nodeagent.wire.netlink.nf_tables.elements import ElementForm
from nodeagent.wire.netlink.nf_tables.ruleset_objects import named_set
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETSETELEM

_OF_A_RULE = "__"


class TableReading(Struct, frozen=True):
    """A table, and the generation of the rules before it was read. partial: it may lack the endpoints of other Services."""

    generation: int
    contents: Contents
    specs: Mapping[str, SetSpec]
    partial: bool = False


def read_own_table(
    ruleset: Ruleset, family: Family, known: TableReading | None = None, *, settled: bool = True
) -> OwnTable | None:
    """Returns the present table; None if it does not exist. known: is used if the rules did not change since.

    settled: if False, `known` is used as it is, and the rules may change meanwhile.
    Raises KernelUnclear if they must not and did, DataplaneError for a table that this version cannot read.
    """
    found = known if known is not None and not settled else read_contents(ruleset, family, known=known)
    if found is None:
        return None
    contents, specs = found.contents, found.specs
    if not contents.fits(specs, family):
        raise DataplaneError(
            f"table nodeagent ({family.value}) is not as this version makes it; an agent that starts replaces it"
        )
    anonymous = {
        name: _keys(ruleset, family, name, header.key_length)
        for name, header in contents.sets.items()
        if name.startswith(_OF_A_RULE)
    }
    learned = KernelTable(ruleset, family, specs).affinity()
    if settled and ruleset.generation() != found.generation:
        raise KernelUnclear("the rules change all the time: they could not be read")
    return own_table(family, contents, specs, {} if learned is None else learned.elements, anonymous)


def read_contents(
    ruleset: Ruleset, family: Family, only: Collection[str] = (), known: TableReading | None = None
) -> TableReading | None:
    """Returns the table, with counters or without; None if it does not exist.

    only: Services (`namespace/name`) of which alone endpoints are wanted; empty: all. known: is returned if the rules did not change
    since it was read.
    """
    generation = ruleset.generation()
    if known is not None and known.generation == generation:
        return known
    specs = present_specs(ruleset, family)
    contents = KernelTable(ruleset, family, specs, only=only).read()
    return None if contents is None else TableReading(generation, contents, specs, bool(only))


def _keys(ruleset: Ruleset, family: Family, name: str, key_length: int) -> tuple[bytes, ...]:
    def read() -> tuple[bytes, ...]:
        dump = ruleset.dump(NFT_MSG_GETSETELEM, nfproto(family), named_set(schema.TABLE, name))
        return tuple(read_elements(ElementForm(key_length), dump).elements)

    with typed_errors():
        return repeated(read)
