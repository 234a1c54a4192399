"""Our table of one family as it was read from the kernel: its rules, not those it should have."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.belief import Contents
from nodeagent.dataplane.nft.chain import Chain, Program
from nodeagent.dataplane.nft.image import Elements, TableImage, frontend_key, node_port_key
from nodeagent.dataplane.nft.interpreter import Interpreter
from nodeagent.dataplane.nft.schema import SetSpec
from nodeagent.model.addresses import Family
from nodeagent.model.text import printable
from nodeagent.netlink.nf_tables.expressions import Rule
from nodeagent.netlink.nf_tables.rule_reading import read_rule_expressions
from nodeagent.trace.question import Question

_CLASS_BYTES = 4


class OwnTable(Struct, frozen=True):
    """handles: of a chain's rules, in order. image: elements by set, learned affinity among them."""

    family: Family
    program: Program
    specs: Mapping[str, SetSpec]
    image: TableImage
    handles: Mapping[str, tuple[int, ...]]

    @property
    def name(self) -> str:
        """With its family, as `nft list table` takes it."""
        return f"{'ip' if self.family is Family.IPV4 else 'ip6'} {schema.TABLE}"

    def interpreter(
        self, local_addresses: Collection[str], sockets: Collection[tuple[str, int, int]] = ()
    ) -> Interpreter:
        """What runs its rules. sockets: bound to an address, with protocol and port."""
        return Interpreter(self.program, self.specs, self.image, local_addresses, sockets)

    def rule(self, chain: str, number: int) -> Rule:
        """A rule by its chain and number, from 1; empty when there is none."""
        try:
            return self.program.chain(chain).rules[number - 1] if number else ()
        except (KeyError, IndexError):
            return ()

    def service_of(self, question: Question) -> str:
        """The service port that a destination belongs to, by the element's comment; empty for none."""
        key = frontend_key(question.destination, question.protocol, question.port)
        found = self.image[schema.FRONTENDS].get(key)
        if found is None:
            found = self.image[schema.NODEPORTS].get(node_port_key(question.protocol, question.port), b"")
        return printable(found[_CLASS_BYTES:].decode(errors="replace"))


def own_table(
    family: Family,
    contents: Contents,
    specs: Mapping[str, SetSpec],
    affinity: Elements,
    anonymous: Mapping[str, tuple[bytes, ...]],
) -> OwnTable:
    """A table out of what was read. anonymous: the keys of the sets that rules brought along."""
    chains = tuple(
        Chain(name, tuple(read_rule_expressions(rule, anonymous) for rule in contents.rules.get(name, ())), hook)
        for name, hook in contents.hooks.items()
    )
    handles = {name: tuple(rule.handle for rule in rules) for name, rules in contents.rules.items()}
    image = {**contents.image, schema.AFFINITY: affinity}
    return OwnTable(family, Program(family, chains, contents.verdicts), specs, image, handles)
