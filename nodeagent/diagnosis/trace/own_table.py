"""Our table of one family as read from the kernel: its present rules, not those it should have. Pure."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.trace.question import Question
from nodeagent.model.addresses import Family, Protocol, pack_address, unpack_address
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.image.image import Elements, TableImage, class_of, frontend_key, node_port_key
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, Program
from nodeagent.proxy.dataplane.program.classes import pick_class
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.nf_tables.expressions import Rule
from nodeagent.wire.netlink.nf_tables.rule_reading import read_rule_expressions

_CLASS_BYTES = 4


class OwnTable(Struct, frozen=True):
    """Our table in one family, as read from the kernel.
    handles: of a chain's rules, in order. image: elements by set, also learned affinity."""

    family: Family
    program: Program
    specs: Mapping[str, SetSpec]
    image: TableImage
    handles: Mapping[str, tuple[int, ...]]

    @property
    def name(self) -> str:
        """Its name with the family, for `nft list table`."""
        return f"{'ip' if self.family is Family.IPV4 else 'ip6'} {schema.TABLE}"

    @property
    def emptied(self) -> bool:
        """Whether a base chain has no rule: another program flushed it (the agent creates none without rules)."""
        return any(chain.hook is not None and not chain.rules for chain in self.program.chains)

    def interpreter(
        self,
        local_addresses: Collection[str],
        sockets: Collection[tuple[str, int, int]] = (),
        at_interface: Mapping[str, Collection[str]] | None = None,
    ) -> Interpreter:
        """Returns an interpreter of its rules. sockets: bound to an address, with protocol and port. at_interface: the node's
        addresses by interface."""
        return Interpreter(self.program, self.specs, self.image, local_addresses, sockets, at_interface=at_interface)

    def rule(self, chain: str, number: int) -> Rule:
        """Returns a rule by its chain and number, from 1; empty if there is no such rule."""
        try:
            return self.program.chain(chain).rules[number - 1] if number else ()
        except (KeyError, IndexError):
            return ()

    def is_foreign(self, chain: str, number: int) -> bool:
        """Returns whether a rule that stops a packet is not the agent's: the agent's are the last ones in chains that
        are jumped to."""
        found = next((one for one in self.program.chains if one.name == chain), None)
        return found is not None and number > 0 and (found.hook is not None or number < len(found.rules))

    def picks(self, question: Question) -> bool:
        """Returns whether connections to exactly this address and port, or node port, lead to endpoints."""
        for name, key in (
            (schema.FRONTENDS, frontend_key(question.destination, question.protocol, question.port)),
            (schema.NODEPORTS, node_port_key(question.protocol, question.port)),
        ):
            value = self.image[name].get(key)
            if value is not None:
                return pick_class(class_of(value)) is not None
        return False

    def serves(self, question: Question) -> bool:
        """Returns whether a Service has exactly this address and port; node ports do not count."""
        return frontend_key(question.destination, question.protocol, question.port) in self.image[schema.FRONTENDS]

    def answers_names(self, question: Question) -> bool:
        """Returns whether names are answered at exactly this address and port, as long as the DNS process runs."""
        key = frontend_key(question.destination, question.protocol, question.port)
        return any(key in self.image.get(name, {}) for name in (schema.DNS_UNTRACKED, schema.DNS_TRACKED))

    def ports_of(self, address: str) -> tuple[str, ...]:
        """Returns the Services' ports at an address, like `53/UDP`."""
        packed = pack_address(address)
        keys = sorted(key[len(packed) :] for key in self.image[schema.FRONTENDS] if key.startswith(packed))
        places = ((Protocol(key[0]).name, int.from_bytes(key[4:6], "big")) for key in keys)
        return tuple(f"{port}/{protocol}" for protocol, port in places)

    def is_pod(self, address: str) -> bool:
        """Returns whether an address is in the ranges of pods, if the table has them."""
        packed, half = pack_address(address), self.family.address_length
        return any(key[:half] <= packed <= key[half:] for key in self.image.get(schema.POD_CIDRS, {}))

    def endpoints_here(self) -> tuple[str, ...]:
        """Returns the endpoints of Services on this node, by address."""
        half = self.family.address_length
        return tuple(sorted({unpack_address(key[:half]) for key in self.image.get(schema.HAIRPIN, {})}))

    def node_port_of(self, question: Question) -> str:
        """Returns the service port with that node port, at any address; empty if no Service has it."""
        return self._comment(schema.NODEPORTS, node_port_key(question.protocol, question.port))

    @property
    def node_port_addresses(self) -> tuple[str, ...]:
        """Where node ports are answered, as ranges or single addresses."""
        half = self.family.address_length
        ranges = sorted(self.image[schema.NODEPORT_ADDRESSES])
        places = ((unpack_address(key[:half]), unpack_address(key[half:])) for key in ranges)
        return tuple(first if first == last else f"{first}-{last}" for first, last in places)

    def service_of(self, question: Question) -> str:
        """Returns the service port of a destination, from the element's comment; empty without one."""
        key = frontend_key(question.destination, question.protocol, question.port)
        return self._comment(schema.FRONTENDS, key) or self.node_port_of(question)

    def _comment(self, name: str, key: bytes) -> str:
        return printable(self.image[name].get(key, b"")[_CLASS_BYTES:].decode(errors="replace"))


def own_table(
    family: Family,
    contents: Contents,
    specs: Mapping[str, SetSpec],
    affinity: Elements,
    anonymous: Mapping[str, tuple[bytes, ...]],
) -> OwnTable:
    """Returns a table made from what was read. anonymous: the keys of anonymous sets in rules."""
    chains = tuple(
        Chain(name, tuple(read_rule_expressions(rule, anonymous) for rule in contents.rules.get(name, ())), hook)
        for name, hook in contents.hooks.items()
    )
    handles = {name: tuple(rule.handle for rule in rules) for name, rules in contents.rules.items()}
    image = {**contents.image, schema.AFFINITY: affinity}
    return OwnTable(family, Program(family, chains, contents.verdicts), specs, image, handles)
