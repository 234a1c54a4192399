"""Reads our whole table of one family: rules, elements, learned affinity."""

from nodeagent.diagnosis.trace.own_table import OwnTable, own_table
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable, present_specs
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, typed_errors
from nodeagent.proxy.dataplane.errors import DataplaneError, KernelUnclear
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables.element_reading import read_elements
from nodeagent.wire.netlink.nf_tables.elements import ElementForm
from nodeagent.wire.netlink.nf_tables.ruleset_objects import named_set
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETSETELEM

_OF_A_RULE = "__"


def read_own_table(ruleset: Ruleset, family: Family) -> OwnTable | None:
    """Returns the present table; None if it does not exist.

    Raises KernelUnclear if rules changed meanwhile, DataplaneError for a table that this version cannot read.
    """
    before = ruleset.generation()
    found = read_contents(ruleset, family)
    if found is None:
        return None
    contents, specs = found
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
    if ruleset.generation() != before:
        raise KernelUnclear("the rules change all the time: they could not be read")
    return own_table(family, contents, specs, {} if learned is None else learned.elements, anonymous)


def read_contents(ruleset: Ruleset, family: Family) -> tuple[Contents, dict[str, SetSpec]] | None:
    """Returns the table and its specs, with counters or without; None if it does not exist."""
    specs = present_specs(ruleset, family)
    contents = KernelTable(ruleset, family, specs).read()
    return None if contents is None else (contents, specs)


def _keys(ruleset: Ruleset, family: Family, name: str, key_length: int) -> tuple[bytes, ...]:
    with typed_errors():
        dump = ruleset.dump(NFT_MSG_GETSETELEM, nfproto(family), named_set(schema.TABLE, name))
        return tuple(read_elements(ElementForm(key_length), dump).elements)
