"""Converts the rules that iptables-legacy-save prints into the form of nft's rules (pure).

Each option becomes the expression that libnftables would list for it (libnftables-json(5)); an option without one
becomes an expression that cannot be evaluated, with the option's name. Priorities: enum nf_ip_hook_priorities
(linux/netfilter_ipv4.h).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from nodeagent.diagnosis.trace.others import Json, OtherChain, OtherRule, OtherTable
from nodeagent.diagnosis.trace.xtables import PASSING
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import ChainType, Hook, HookNumber

TOOLS = {Family.IPV4: "iptables-legacy", Family.IPV6: "ip6tables-legacy"}
_HOOKS = {
    "PREROUTING": HookNumber.PREROUTING,
    "INPUT": HookNumber.INPUT,
    "FORWARD": HookNumber.FORWARD,
    "OUTPUT": HookNumber.OUTPUT,
    "POSTROUTING": HookNumber.POSTROUTING,
}
_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}
_DSTNAT, _SRCNAT = -100, 100
_IP = {Family.IPV4: "ip", Family.IPV6: "ip6"}
_STATES = frozenset({"INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED"})
_NAT_STATES = frozenset({"DNAT", "SNAT"})
_WORD = re.compile(r'"(?:\\.|[^"\\])*"|\S+')
_FLAGS = ("fin", "syn", "rst", "psh", "ack", "urg")
_ALL_BITS = 0xFFFFFFFF


def read_legacy_tables(saved: str, family: Family) -> tuple[OtherTable, ...]:
    """Returns the tables in the output of iptables-legacy-save (ip6tables-legacy-save). Raises ValueError for other
    text."""
    tables: list[OtherTable] = []
    name, headers, rules = "", dict[str, str](), dict[str, list[OtherRule]]()
    for line in saved.splitlines():
        if line.startswith("*"):
            name, headers, rules = line[1:].strip(), {}, {}
        elif line.startswith(":"):
            chain, policy, *_ = line[1:].split()
            headers[chain] = policy
        elif line.startswith("-A "):
            _, chain, *rest = line.split(" ", 2)
            text = rest[0] if rest else ""
            rules.setdefault(chain, []).append(OtherRule(0, _expressions(text, headers, family), text))
        elif line == "COMMIT":
            tables.append(_table(f"{TOOLS[family]} {name}", name, family, headers, rules))
    return tuple(tables)


def _table(
    named: str, kind: str, family: Family, headers: Mapping[str, str], rules: Mapping[str, list[OtherRule]]
) -> OtherTable:
    chains = {
        chain: OtherChain(
            named,
            chain,
            tuple(rules.get(chain, ())),
            None if policy == "-" else hook_of_builtin(kind, chain),
            accepts=policy in ("ACCEPT", "-"),
            reroutes=kind == "mangle" and chain == "OUTPUT",
        )
        for chain, policy in headers.items()
    }
    return OtherTable(named, (family,), chains)


def hook_of_builtin(table: str, chain: str) -> Hook | None:
    """Returns the hook of a built-in chain; None for one that is only jumped to."""
    number = _HOOKS.get(chain)
    if number is None:
        return None
    if table == "nat":
        destination = number in (HookNumber.PREROUTING, HookNumber.OUTPUT)
        return Hook(number, _DSTNAT if destination else _SRCNAT, ChainType.NAT)
    return Hook(number, _PRIORITIES.get(table, 0), ChainType.FILTER)


def _match(left: Json, right: object, *, inverted: bool = False) -> Json:
    return {"match": {"op": "!=" if inverted else "==", "left": left, "right": right}}


def _unknown(*words: str) -> Json:
    return {" ".join(words): None}


class _Options:
    """Iterates over the options of one rule, in order: name, values, and whether a `!` is before it."""

    def __init__(self, text: str) -> None:
        self._words = _WORD.findall(text)
        self._at = 0

    def __iter__(self) -> Iterator[tuple[str, list[str], bool]]:
        while self._at < len(self._words):
            inverted = self._words[self._at] == "!"
            self._at += inverted
            if self._at == len(self._words):
                raise ValueError("a rule of iptables ends with '!'")
            name = self._words[self._at]
            self._at += 1
            values = []
            while self._at < len(self._words) and not self._starts_option(self._words[self._at]):
                values.append(self._words[self._at])
                self._at += 1
            yield name, values, inverted

    def _starts_option(self, word: str) -> bool:
        """Returns whether the word begins an option; a value that looks like one is in quotes."""
        return word == "!" or (word.startswith("-") and not word[1:2].isdigit() and word != "-")


def _expressions(text: str, chains: Mapping[str, str], family: Family) -> tuple[Json, ...]:
    """Returns matches that can be evaluated, then those that cannot, then the rule's target."""
    known: list[Json] = []
    unknown: list[Json] = []
    target: list[Json] = []
    options = list(_Options(text))
    values = {name: given for name, given, _ in options}
    for name, given, inverted in options:
        if name in ("-j", "-g"):
            target = _target(name, given[0], values, chains, family)
        elif name in _OF_TARGETS:
            continue
        elif name == "-m":
            if given[0] not in _MODULES:
                unknown.append(_unknown("-m", given[0]))
        elif name in _MATCHES:
            made = _MATCHES[name](given, family, inverted)
            (known if "match" in made else unknown).append(made)
        elif not _belongs_to_unknown(unknown):
            unknown.append(_unknown(name, *given))
    return (*known, *unknown, *target)


def _belongs_to_unknown(unknown: list[Json]) -> bool:
    """Returns whether an unknown module was named: then its options need no mention."""
    return any(next(iter(one)).startswith("-m ") for one in unknown)


def _address(field: str, given: list[str], family: Family, inverted: bool) -> Json:
    address, _, length = given[0].partition("/")
    if length and not length.isdigit():
        return _unknown(field, *given)
    right: object = {"prefix": {"addr": address, "len": int(length)}} if length else address
    return _match({"payload": {"protocol": _IP[family], "field": field}}, right, inverted=inverted)


def _interface(key: str, given: list[str], _: Family, inverted: bool) -> Json:
    name = given[0]
    pattern = f"{name[:-1]}*" if name.endswith("+") else name
    return _match({"meta": {"key": key}}, pattern, inverted=inverted)


def _protocol(given: list[str], _: Family, inverted: bool) -> Json:
    name = given[0]
    return _match({"meta": {"key": "l4proto"}}, int(name) if name.isdigit() else name, inverted=inverted)


def _ports(field: str, given: list[str], _: Family, inverted: bool) -> Json:
    ranges: list[object] = []
    for part in given[0].split(","):
        first, colon, last = part.partition(":")
        if not (first.isdigit() and (last.isdigit() or not colon)):
            return _unknown(f"--{field}", *given)
        ranges.append({"range": [int(first), int(last)]} if colon else int(first))
    return _match({"payload": {"protocol": "th", "field": field}}, {"set": ranges}, inverted=inverted)


def _flags(given: list[str], _: Family, inverted: bool) -> Json:
    mask, wanted = (
        list(_FLAGS) if one == "ALL" else [] if one == "NONE" else one.lower().split(",") for one in given[:2]
    )
    if not mask:
        return _unknown("--tcp-flags", *given)
    left = {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, {"|": mask}]}
    return _match(left, {"|": wanted} if wanted else 0, inverted=inverted)


def _state(given: list[str], _: Family, inverted: bool) -> Json:
    asked = given[0].split(",")
    if set(asked) <= _STATES:
        return _match({"ct": {"key": "state"}}, {"set": [one.lower() for one in asked]}, inverted=inverted)
    if set(asked) <= _NAT_STATES and len(asked) == 1:
        bit = 32 if asked == ["DNAT"] else 16
        return _match({"&": [{"ct": {"key": "status"}}, bit]}, bit, inverted=inverted)
    return _unknown("--ctstate", *given)


def _status(given: list[str], _: Family, inverted: bool) -> Json:
    bits = {"NONE": 0, "EXPECTED": 1, "SEEN_REPLY": 2, "ASSURED": 4, "CONFIRMED": 8}
    asked = given[0].split(",")
    if asked == ["NONE"] or not set(asked) <= bits.keys():
        return _unknown("--ctstatus", *given)
    left = {"&": [{"ct": {"key": "status"}}, sum(bits[one] for one in asked)]}
    return _match(left, 0, inverted=not inverted)


def _of_connection(field: str, given: list[str], family: Family, inverted: bool) -> Json:
    address, _, length = given[0].partition("/")
    right: object = {"prefix": {"addr": address, "len": int(length)}} if length.isdigit() else address
    return _match({"ct": {"key": f"{_IP[family]} {field}", "dir": "original"}}, right, inverted=inverted)


def _original_port(given: list[str], _: Family, inverted: bool) -> Json:
    if not given[0].isdigit():
        return _unknown("--ctorigdstport", *given)
    return _match({"ct": {"key": "proto-dst", "dir": "original"}}, int(given[0]), inverted=inverted)


def _direction(given: list[str], _: Family, inverted: bool) -> Json:
    return _match({"ct": {"key": "direction"}}, given[0].lower(), inverted=inverted)


def _mark(given: list[str], _: Family, inverted: bool) -> Json:
    value, _slash, mask = given[0].partition("/")
    left: Json = {"meta": {"key": "mark"}}
    return _match({"&": [left, int(mask, 0)]} if mask else left, int(value, 0), inverted=inverted)


def _type(flag: str, given: list[str], _: Family, inverted: bool) -> Json:
    kinds = {"set": [one.lower() for one in given[0].split(",")]}
    return _match({"fib": {"result": "type", "flags": [flag]}}, kinds, inverted=inverted)


def _range(field: str, given: list[str], family: Family, inverted: bool) -> Json:
    ends = {"range": given[0].split("-", 1)}
    return _match({"payload": {"protocol": _IP[family], "field": field}}, ends, inverted=inverted)


def _packet_type(given: list[str], _: Family, inverted: bool) -> Json:
    return _match({"meta": {"key": "pkttype"}}, {"unicast": "host"}.get(given[0], given[0]), inverted=inverted)


_MATCHES: dict[str, Callable[[list[str], Family, bool], Json]] = {
    "-s": partial(_address, "saddr"),
    "-d": partial(_address, "daddr"),
    "-i": partial(_interface, "iifname"),
    "-o": partial(_interface, "oifname"),
    "-p": _protocol,
    "--dport": partial(_ports, "dport"),
    "--dports": partial(_ports, "dport"),
    "--sport": partial(_ports, "sport"),
    "--sports": partial(_ports, "sport"),
    "--tcp-flags": _flags,
    "--state": _state,
    "--ctstate": _state,
    "--ctstatus": _status,
    "--ctorigdst": partial(_of_connection, "daddr"),
    "--ctorigsrc": partial(_of_connection, "saddr"),
    "--ctorigdstport": _original_port,
    "--ctdir": _direction,
    "--mark": _mark,
    "--dst-type": partial(_type, "daddr"),
    "--src-type": partial(_type, "saddr"),
    "--dst-range": partial(_range, "daddr"),
    "--src-range": partial(_range, "saddr"),
    "--pkt-type": _packet_type,
    "--comment": lambda _given, _family, _inverted: {"match": {"op": "==", "left": 0, "right": 0}},
}
_MODULES = frozenset(
    {"tcp", "udp", "sctp", "udplite", "dccp", "multiport", "comment", "state", "conntrack", "mark", "addrtype"}
    | {"iprange", "pkttype"}
)
_ZONE_DIRECTIONS = {"--zone-orig": {"dir": "original"}, "--zone-reply": {"dir": "reply"}}
_OF_TARGETS = frozenset(
    {"--to-destination", "--to-ports", "--to-source", "--to", "--reject-with", "--set-xmark", "--set-mark", "--notrack"}
    | {"--zone", "--zone-orig", "--zone-reply", "--helper", "--ctevents", "--random", "--random-fully", "--persistent"}
    | {"--save-mark", "--restore-mark", "--nfmask", "--ctmask", "--log-prefix", "--log-level", "--log-ip-options"}
    | {"--log-tcp-options", "--log-tcp-sequence", "--log-uid", "--nflog-group", "--nflog-prefix", "--nflog-size"}
    | {"--nflog-threshold", "--set-mss", "--clamp-mss-to-pmtu", "--checksum-fill", "--set-class", "--set-dscp"}
    | {"--set-dscp-class", "--set-tos", "--ttl-set", "--ttl-dec", "--ttl-inc", "--hl-set", "--hl-dec", "--hl-inc"}
    | {"--add-set", "--del-set", "--exist", "--on-port", "--on-ip", "--tproxy-mark", "--queue-num", "--queue-bypass"}
    | {"--queue-balance", "--strip-options", "--timeout"}
)


def _target(
    option: str, name: str, values: Mapping[str, list[str]], chains: Mapping[str, str], family: Family
) -> list[Json]:
    if name in chains:
        return [{"goto" if option == "-g" else "jump": {"target": name}}]
    if name in _TARGETS:
        return _TARGETS[name](values, family)
    return [] if name in PASSING else [_unknown("-j", name)]


def _refusal(values: Mapping[str, list[str]], _: Family) -> list[Json]:
    return [{"reject": {"type": "tcp reset"} if values.get("--reject-with") == ["tcp-reset"] else {}}]


def _tracking(values: Mapping[str, list[str]], _: Family) -> list[Json]:
    if "--notrack" in values:
        return [{"notrack": None}]
    option = next((name for name in values if name.startswith("--zone")), None)
    if option is None:
        return []
    number = values[option][0]
    if not number.isdigit():
        return [_unknown("-j", "CT", "--zone")]
    # Unlike with nftables, no effect on packets that were left untracked before.
    key = {"key": "zone", "iptables": True} | _ZONE_DIRECTIONS.get(option, {})
    return [{"mangle": {"key": {"ct": key}, "value": int(number)}}]


def _destination(values: Mapping[str, list[str]], family: Family) -> list[Json]:
    """Returns the dnat for the first address and port of a range; missing parts stay unchanged."""
    place = (values.get("--to-destination") or [""])[0]
    if family is Family.IPV6 and not place.startswith("["):
        address, ports = place, ""
    elif place.startswith("["):
        address, _, ports = place[1:].partition("]")
        ports = ports.removeprefix(":")
    else:
        address, _, ports = place.partition(":")
    body: Json = {}
    if address:
        body["addr"] = address.partition("-")[0]
    if ports:
        body["port"] = int(ports.partition("/")[0].partition("-")[0])
    return [{"dnat": body}]


def _source(values: Mapping[str, list[str]], family: Family) -> Json:
    """Returns the first address of a range."""
    place = (values.get("--to-source") or [""])[0]
    address = place.partition(":")[0] if family is Family.IPV4 else place.lstrip("[").partition("]")[0]
    return {"addr": address.partition("-")[0]}


def _redirection(values: Mapping[str, list[str]], _: Family) -> list[Json]:
    ports = (values.get("--to-ports") or [""])[0]
    return [{"redirect": {"port": int(ports.partition("-")[0])} if ports else {}}]


def _new_mark(values: Mapping[str, list[str]], _: Family) -> list[Json]:
    given = values.get("--set-xmark")
    if given is None:
        return [_unknown("-j", "MARK")]
    value, _slash, mask = given[0].partition("/")
    cleared = {"&": [{"meta": {"key": "mark"}}, ~int(mask or str(_ALL_BITS), 0) & _ALL_BITS]}
    return [{"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"^": [cleared, int(value, 0)]}}}]


_TARGETS: dict[str, Callable[[Mapping[str, list[str]], Family], list[Json]]] = {
    "ACCEPT": lambda _values, _family: [{"accept": None}],
    "DROP": lambda _values, _family: [{"drop": None}],
    "RETURN": lambda _values, _family: [{"return": None}],
    "REJECT": _refusal,
    "DNAT": _destination,
    "REDIRECT": _redirection,
    "SNAT": lambda values, family: [{"snat": _source(values, family)}],
    "MASQUERADE": lambda _values, _family: [{"masquerade": None}],
    "NOTRACK": lambda _values, _family: [{"notrack": None}],
    "CT": _tracking,
    "MARK": _new_mark,
}
