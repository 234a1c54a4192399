"""Messages of one atomic batch, in an order the kernel accepts (pure).

A transaction is a value: building one never fails and never reads the kernel. Every message knows what it is about,
so a rejected one can be traced to a rule or to elements.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.image.carried_counts import MOST_ECHOED, Counts, Successors
from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, Program
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.proxy.dataplane.program.typeof import set_user_data
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables import ruleset_objects as objects
from nodeagent.wire.netlink.nf_tables.batch import pack_batch
from nodeagent.wire.netlink.nf_tables.elements import (
    MAX_LIST_BYTES,
    ElementForm,
    pack_elements,
    pack_expiring,
    pack_keys,
    pack_verdicts,
)
from nodeagent.wire.netlink.nf_tables.expressions import ANONYMOUS_SET, OneOf, Rule
from nodeagent.wire.netlink.uapi import nf_tables as uapi
from nodeagent.wire.netlink.uapi.netlink import NLM_F_APPEND, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL

_OWNED = uapi.NFT_TABLE_F_OWNER | uapi.NFT_TABLE_F_PERSIST
FEW_ELEMENTS = 500
"""So many are packed at once, because they nearly always fit one message; more are packed one by one, for the memory they take."""
MOST_DEVICES = 200
"""In one message (nf_tables_api.c, NFT_NETDEVICE_MAX: 256)."""
_TABLE_COMMENT = f"{schema.COMMENT_PREFIX} services are map elements, see docs/dataplane.md"


@dataclass(frozen=True, slots=True)
class Message:
    """One operation. about: text for users. set and keys: for element operations, in the order of the elements.

    expressions: the names of a rule's expressions, in order.
    """

    kind: int
    flags: int
    body: bytes
    about: str
    set: str = ""
    keys: tuple[bytes, ...] = ()
    expressions: tuple[str, ...] = ()


class Transaction:
    """Operations on one family's table, in order."""

    def __init__(self, family: Family, specs: Mapping[str, SetSpec], table: str = schema.TABLE) -> None:
        self.family = family
        self._table = table
        self.messages: list[Message] = []
        self._specs = specs
        self._next_set_id = 1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.messages

    def encode(self, first_seq: int, generation: int | None = None) -> bytes:
        """Returns the batch as one datagram; message i has sequence number first_seq + 1 + i, the last one asks for an ack.

        generation: the kernel accepts the batch only while the ruleset has this one (nfnetlink.h, NFNL_BATCH_GENID).
        """
        operations = ((item.kind, item.flags, item.body) for item in self.messages)
        return pack_batch(nfproto(self.family), operations, first_seq, generation)

    def claim_table(self, *, owned: bool) -> None:
        """Creates the table, or takes over the existing one (as owner: only an orphan or our own)."""
        body = objects.pack_table(self._table, _OWNED if owned else 0, _TABLE_COMMENT)
        self._add(uapi.NFT_MSG_NEWTABLE, NLM_F_CREATE, body, "table")

    def probe_owned_table(self, name: str) -> None:
        """Creates an owned, persistent table and deletes it again: accepted only if the kernel knows such tables."""
        self._add(uapi.NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, objects.pack_table(name, _OWNED), "probe table")
        self._add(uapi.NFT_MSG_DELTABLE, 0, objects.pack_table(name), "probe table")

    def delete_table(self) -> None:
        """Deletes the table with everything in it."""
        self._add(uapi.NFT_MSG_DELTABLE, 0, objects.pack_table(self._table), "table")

    def create_sets(self) -> None:
        """Creates every set and map."""
        for spec in self._specs.values():
            self._create_set(spec)

    def write_program(self, program: Program) -> None:
        """Creates all chains, then their rules, then the elements that lead to them."""
        self._create_flowtable(program)
        self.add_chains(program.chains)
        self.add_verdicts(program.verdicts)

    def write_unhooked(self, program: Program) -> None:
        """Creates everything of a program except its base chains: no packet gets there yet."""
        self._create_flowtable(program)
        self.add_chains(chain for chain in program.chains if chain.hook is None)
        self.add_verdicts(program.verdicts)

    def hook(self, program: Program) -> None:
        """Creates the base chains of a program."""
        self.add_chains(chain for chain in program.chains if chain.hook is not None)

    def add_chains(self, chains: Iterable[Chain]) -> None:
        """Creates chains, then their rules: these may jump to any of the chains."""
        chains = tuple(chains)
        for chain in chains:
            hook = chain.hook
            where = None if hook is None else objects.ChainHook(hook.number, hook.priority, hook.type.value)
            body = objects.pack_chain(self._table, chain.name, where)
            self._add(uapi.NFT_MSG_NEWCHAIN, NLM_F_CREATE, body, f"chain {chain.name}")
        for chain in chains:
            for number, rule in enumerate(chain.rules, 1):
                self._add_rule(chain.name, rule, f"rule {number} of chain {chain.name}")

    def flush_rules(self) -> None:
        """Deletes every rule of the table."""
        self._add(uapi.NFT_MSG_DELRULE, 0, objects.pack_rules(self._table), "all rules")

    def delete_chain(self, name: str) -> None:
        """Deletes a chain to which no rule and no element jumps."""
        self._add(uapi.NFT_MSG_DELCHAIN, 0, objects.pack_chain(self._table, name), f"chain {name}")

    def delete_flowtable(self, name: str) -> None:
        """Deletes a flowtable to which no rule adds connections; those in it are forwarded through the chains again."""
        body = objects.named_flowtable(self._table, name)
        self._add(uapi.NFT_MSG_DELFLOWTABLE, 0, body, f"flowtable {name}")

    def change_devices(self, name: str, devices: Iterable[str], *, remove: bool = False) -> None:
        """Adds devices to a flowtable, or removes them, in messages of as many as the kernel takes."""
        kind, flags = (uapi.NFT_MSG_DELFLOWTABLE, 0) if remove else (uapi.NFT_MSG_NEWFLOWTABLE, NLM_F_CREATE)
        names = sorted(devices)
        for start in range(0, len(names), MOST_DEVICES):
            some = names[start : start + MOST_DEVICES]
            body = objects.pack_flowtable(self._table, name, some)
            self._add(kind, flags, body, f"devices of flowtable {name}: {', '.join(some)}")

    def add_verdicts(self, verdicts: Mapping[str, Mapping[bytes, str]]) -> None:
        """Adds `goto chain` elements to verdict maps."""
        for name, elements in verdicts.items():
            self._add_elements(uapi.NFT_MSG_NEWSETELEM, NLM_F_CREATE, name, tuple(elements), pack_verdicts(elements))

    def delete_verdicts(self, name: str, keys: Iterable[bytes]) -> None:
        """Deletes elements of a verdict map."""
        wanted = tuple(keys)
        self._add_elements(uapi.NFT_MSG_DELSETELEM, 0, name, wanted, pack_keys(self._form(name), wanted))

    def write_delta(self, delta: Delta, counts: Counts | None = None, successors: Successors | None = None) -> None:
        """Writes deletions before additions: a key that gets another value must be deleted first.

        counts: the initial counters of new elements. The deletion of an element whose count they continue (successors: if it had another
        key) is echoed.
        """
        counts, successors = counts or {}, successors or {}
        echo = NLM_F_ECHO if sum(map(len, counts.values())) <= MOST_ECHOED else 0
        for name, keys in delta.deletes.items():
            others, form = successors.get(name, {}), self._form(name)
            carried = {others.get(key, key) for key in counts.get(name, {})}
            for flags, some in (
                (echo, [key for key in keys if key in carried] if carried else []),
                (0, [key for key in keys if key not in carried] if carried else keys),
            ):
                if some:
                    self._add_elements(uapi.NFT_MSG_DELSETELEM, flags, name, tuple(some), pack_keys(form, some))
        for name, elements in delta.puts.items():
            encoded = pack_elements(self._form(name), elements, counts.get(name))
            self._add_elements(uapi.NFT_MSG_NEWSETELEM, NLM_F_CREATE, name, tuple(elements), encoded)

    def forget_affinity(self, keys: Iterable[bytes]) -> None:
        """Deletes learned entries, one message each: then the kernel names all that have expired meanwhile, not only the first."""
        about = f"elements of {schema.AFFINITY}"
        wanted = tuple(keys)
        for key, encoded in zip(wanted, pack_keys(self._form(schema.AFFINITY), wanted), strict=True):
            body = objects.pack_element_list(self._table, schema.AFFINITY, (encoded,))
            self.messages.append(Message(uapi.NFT_MSG_DELSETELEM, 0, body, about, schema.AFFINITY, (key,)))

    def restore_affinity(self, learned: Mapping[bytes, tuple[bytes, int, int]]) -> None:
        """Restores learned entries in a new table: key → (endpoint, timeout ms, remaining ms)."""
        encoded = pack_expiring(learned)
        self._add_elements(uapi.NFT_MSG_NEWSETELEM, NLM_F_CREATE, schema.AFFINITY, tuple(learned), encoded)

    def _form(self, name: str) -> ElementForm:
        return self._specs[name].form(self.family)

    def _add(self, kind: int, flags: int, body: bytes, about: str) -> None:
        self.messages.append(Message(kind, flags, body, about))

    def _create_set(self, spec: SetSpec) -> None:
        family = self.family
        made = objects.NewSet(
            spec.name,
            spec.flags,
            spec.key_type(family),
            spec.key_length(family),
            spec.data_type(family),
            spec.data_length(family),
            spec.size,
            spec.field_lengths(family) if schema.Flag.CONCAT in spec.flags else (),
            schema.AFFINITY_DEFAULT_TIMEOUT_SECONDS * 1000 if spec.dynamic else None,
            spec.counter,
            set_user_data(spec, family),
        )
        self._add(
            uapi.NFT_MSG_NEWSET,
            NLM_F_CREATE,
            objects.pack_set(self._table, made, self._take_set_id()),
            f"set {spec.name}",
        )

    def _create_flowtable(self, program: Program) -> None:
        """Creates the program's flowtable, if it has one; of one that exists the devices stay."""
        if program.flowtable:
            body = objects.pack_counting_flowtable(self._table, program.flowtable)
            self._add(uapi.NFT_MSG_NEWFLOWTABLE, NLM_F_CREATE, body, f"flowtable {program.flowtable}")

    def _take_set_id(self) -> int:
        self._next_set_id += 1
        return self._next_set_id

    def _add_rule(self, chain: str, rule: Rule, about: str) -> None:
        encoded = []
        for expression in rule:
            if isinstance(expression, OneOf):
                set_id = self._add_anonymous_set(expression)
                data = expression.encode_with(set_id)
            else:
                data = expression.encode()
            encoded.append((expression.name, data))
        body = objects.pack_rule(self._table, chain, encoded)
        names = tuple(name for name, _ in encoded)
        self.messages.append(Message(uapi.NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, body, about, expressions=names))

    def _add_anonymous_set(self, expression: OneOf) -> int:
        set_id = self._take_set_id()
        flags, length = schema.Flag.ANONYMOUS | schema.Flag.CONSTANT, len(expression.values[0])
        made = objects.NewSet(ANONYMOUS_SET, flags, expression.key_type, length)
        self._add(uapi.NFT_MSG_NEWSET, NLM_F_CREATE, objects.pack_set(self._table, made, set_id), "set of a rule")
        elements = pack_keys(ElementForm(length), expression.values)
        body = objects.pack_element_list(self._table, ANONYMOUS_SET, elements, set_id)
        self._add(uapi.NFT_MSG_NEWSETELEM, NLM_F_CREATE, body, "set of a rule")
        return set_id

    def _add_elements(
        self, kind: int, flags: int, name: str, keys: tuple[bytes, ...], encoded: Iterable[bytes]
    ) -> None:
        about, start = f"elements of {name}", 0
        for some in _split_into_messages(encoded, len(keys)):
            body = objects.pack_element_list(self._table, name, some)
            stop = start + len(some)
            self.messages.append(Message(kind, flags, body, about, name, keys[start:stop]))
            start = stop


def _split_into_messages(encoded: Iterable[bytes], count: int) -> Iterator[list[bytes]]:
    """Splits this many elements into lists that fit one message each."""
    some: list[bytes] = []
    if count <= FEW_ELEMENTS:
        some = list(encoded)
        if 0 < sum(map(len, some)) <= MAX_LIST_BYTES:
            yield some
            return
        encoded, some = some, []
    size = 0
    for element in encoded:
        if some and size + len(element) > MAX_LIST_BYTES:
            yield some
            some, size = [], 0
        some.append(element)
        size += len(element)
    if some:
        yield some
