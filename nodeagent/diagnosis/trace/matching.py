"""Evaluates a match of nft on a packet, from its JSON: true, false, or unknown (pure).

Only what decides about new connections is known of a packet. Everything else (rates, users, sockets, marks set by other
programs) is unknown, and so is a match on it.
"""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

from nodeagent.diagnosis.simulator.packet import RST, SCTP, SYN, TCP, UDP
from nodeagent.diagnosis.trace.others import Json, OtherTable
from nodeagent.diagnosis.trace.traveller import Traveller
from nodeagent.model.addresses import LAST_PORT, Family, parse_address

PROTOCOLS = {"icmp": 1, "tcp": TCP, "udp": UDP, "ipv6-icmp": 58, "icmpv6": 58, "sctp": SCTP, "udplite": 136, "dccp": 33}
NAMES = {
    "state": {"invalid": 1, "established": 2, "related": 4, "new": 8, "untracked": 64},
    "status": {"expected": 1, "seen-reply": 2, "assured": 4, "confirmed": 8, "snat": 16, "dnat": 32, "dying": 512},
    "flags": {"fin": 1, "syn": SYN, "rst": RST, "psh": 8, "ack": 16, "urg": 32, "ecn": 64, "cwr": 128},
    "l4proto": PROTOCOLS,
    "protocol": PROTOCOLS | {"ip": 0x0800, "ip6": 0x86DD, "arp": 0x0806},
    "nexthdr": PROTOCOLS,
    "nfproto": {"ipv4": 2, "ipv6": 10},
    "code": {
        "net-unreachable": 0,
        "host-unreachable": 1,
        "prot-unreachable": 2,
        "port-unreachable": 3,
        "frag-needed": 4,
        "net-prohibited": 9,
        "host-prohibited": 10,
        "admin-prohibited": 13,
    },
}
"""The numbers of words, by the field with which they are compared."""
NO_INTERFACE = "0"
"""How nft writes the index of no interface."""
_TRANSPORTS = {"tcp": TCP, "udp": UDP, "sctp": SCTP}
_ETHERTYPES = {Family.IPV4: 0x0800, Family.IPV6: 0x86DD}
_NFPROTOS = {Family.IPV4: 2, Family.IPV6: 10}


class Unknown(Exception):
    """Raised if a value cannot be known before the packet exists; the text names it, such as `ct mark` or `set
    @blocked`."""


class FieldAbsent(Exception):
    """Raised if the packet has no such field or a map no such key: then the kernel continues with the next rule."""


def value_of(expression: Any, traveller: Traveller, table: OtherTable) -> Any:
    """Returns the packet's value for the left side of a match: text, a number, or a tuple for a concatenation.
    Raises Unknown, FieldAbsent."""
    if isinstance(expression, str | int):
        return expression
    kind, body = next(iter(expression.items()))
    if kind in _LOADS:
        return _LOADS[kind](body, traveller)
    match kind:
        case "concat":
            return tuple(value_of(part, traveller, table) for part in body)
        case "&":
            return _number(value_of(body[0], traveller, table), body[0]) & _number(body[1], body[0])
        case "|" | "^":
            one, other = (_number(value_of(part, traveller, table), body[0]) for part in body[:2])
            return one | other if kind == "|" else one ^ other
        case "map":
            return look_up(value_of(body["key"], traveller, table), body["data"], table, body["key"])
    raise Unknown(kind)


def matches(body: Json, traveller: Traveller, table: OtherTable) -> bool:
    """Returns whether the packet fulfils a match, the body of nft's `match` in JSON. Raises Unknown, FieldAbsent."""
    left = value_of(body["left"], traveller, table)
    held = among(left, body["right"], table, body["left"], flags=body["op"] == "in")
    match body["op"]:
        case "==" | "in":
            return held
        case "!=":
            return not held
    order, against = body["op"], _number(body["right"], body["left"])
    if isinstance(left, range):
        ends = {"<": (0, against - 1), "<=": (0, against), ">": (against + 1, LAST_PORT), ">=": (against, LAST_PORT)}
        return covers(*ends[order], left)
    mine = _number(left, body["left"])
    return {"<": mine < against, ">": mine > against, "<=": mine <= against, ">=": mine >= against}[order]


def among(value: Any, right: Any, table: OtherTable, asked: Any, *, flags: bool = False) -> bool:
    """Returns whether a value equals the right side of a match, or is in its set. asked: the left side, which gives
    words their meaning. flags: one common bit is enough. Raises Unknown."""
    if isinstance(right, dict):
        return _in_structure(value, right, table, asked, flags=flags)
    if isinstance(right, list) and flags:
        return any(among(value, item, table, asked, flags=flags) for item in right)
    if isinstance(right, str) and right.startswith("@"):
        return any(among(value, item, table, asked) for item in _elements(right, table))
    return _equal(value, right, asked, flags=flags)


def _equal(value: Any, right: Any, asked: Any, *, flags: bool) -> bool:
    if isinstance(value, range):
        return covers(_number(right, asked), _number(right, asked), value)
    if isinstance(value, int) and not isinstance(value, bool):
        wanted = _number(right, asked)
        return bool(value & wanted) if flags else value == wanted
    if isinstance(right, str) and isinstance(value, str):
        return value.startswith(right[:-1]) if right.endswith("*") else (parse_address(right) or right) == value
    return bool(value == right)


def covers(first: int, last: int, value: int | range) -> bool:
    """Returns whether a number, or every number of a range, is between the ends. Raises Unknown if only some are."""
    if isinstance(value, int):
        return first <= value <= last
    if last < value[0] or value[-1] < first:
        return False
    if first <= value[0] and value[-1] <= last:
        return True
    raise Unknown("the client's port")


def _in_structure(value: Any, right: Json, table: OtherTable, asked: Any, *, flags: bool) -> bool:
    kind, body = next(iter(right.items()))
    match kind:
        case "set":
            held = any(among(value, item, table, asked) for item in (body if isinstance(body, list) else [body]))
        case "prefix":
            held = ip_address(str(value)) in ip_network(f"{body['addr']}/{body['len']}", strict=False)
        case "range" if isinstance(value, range):
            held = covers(_order(body[0], asked), _order(body[1], asked), value)
        case "range":
            held = _order(body[0], asked) <= _order(value, asked) <= _order(body[1], asked)
        case "concat":
            fields = asked["concat"] if isinstance(asked, dict) and "concat" in asked else [asked] * len(body)
            held = all(among(mine, part, table, field) for mine, part, field in zip(value, body, fields, strict=True))
        case "elem":
            held = among(value, body["val"], table, asked)
        case "|":
            wanted = _number(right, asked)
            held = bool(_number(value, asked) & wanted) if flags else value == wanted
        case _:
            raise Unknown(kind)
    return held


def look_up(key: Any, data: Any, table: OtherTable, asked: Any) -> Any:
    """Returns the value or verdict of a map for a key. Raises FieldAbsent if it has none, Unknown."""
    pairs = _elements(data, table) if isinstance(data, str) else tuple(data["set"])
    for found, value in pairs:
        if among(key, found, table, asked):
            return value
    raise FieldAbsent


def _elements(name: str, table: OtherTable) -> tuple[Any, ...]:
    if name[1:] not in table.sets:
        raise Unknown(f"set {name}")
    return table.sets[name[1:]]


def _payload(body: Json, traveller: Traveller) -> Any:
    protocol, name = body.get("protocol", ""), body.get("field", "")
    packet, machine = traveller.packet, traveller.machine
    if protocol in ("ip", "ip6"):
        if (protocol == "ip6") is not (packet.family is Family.IPV6):
            raise FieldAbsent
        known = {"saddr": packet.source, "daddr": machine.destination, "protocol": packet.protocol}
        known["nexthdr"] = packet.protocol
    elif protocol in _TRANSPORTS or protocol == "th":
        if protocol != "th" and _TRANSPORTS[protocol] != packet.protocol:
            raise FieldAbsent
        known = {"dport": traveller.destination_port, "sport": traveller.source_port, "flags": packet.tcp_flags}
    elif protocol in ("icmp", "icmpv6") and traveller.error is not None:
        if PROTOCOLS[protocol] != packet.protocol:
            raise FieldAbsent
        known = dict(zip(("type", "code"), traveller.error, strict=True))
    elif protocol in ("icmp", "icmpv6", "arp", "ah", "esp", "comp", "udplite", "dccp", "igmp"):
        raise FieldAbsent
    else:
        known = {}
    if name not in known:
        raise Unknown(f"{protocol} {name}".strip() or "raw payload")
    return known[name]


def _meta(key: str, traveller: Traveller) -> Any:
    family = traveller.packet.family
    known = {
        "l4proto": traveller.packet.protocol,
        "protocol": _ETHERTYPES[family],
        "nfproto": _NFPROTOS[family],
        "iifname": traveller.iif,
        "iif": traveller.iif or NO_INTERFACE,
        "oifname": traveller.oif,
        "oif": traveller.oif or NO_INTERFACE,
        "mark": traveller.mark,
        "pkttype": "host",
        "priority": traveller.machine.priority,
    }
    if key not in known:
        raise Unknown(f"meta {key}")
    return known[key]


def _ct(body: Json, traveller: Traveller) -> Any:
    """Returns a value of its connection; without a connection, a rule that needs more than the state ends (nft_ct.c,
    nft_ct_get_eval)."""
    packet = traveller.original
    if body["key"] == "state":
        return traveller.state
    if not traveller.has_connection:
        raise FieldAbsent
    known: dict[str, Any] = {"status": traveller.machine.status, "zone": traveller.zone}
    if traveller.request is None:
        known["mark"] = 0
    if body.get("dir", "original") == "original":
        known |= dict.fromkeys(("ip daddr", "ip6 daddr", "daddr"), packet.destination)
        known |= dict.fromkeys(("ip saddr", "ip6 saddr", "saddr"), packet.source)
        known |= {"protocol": packet.protocol, "proto-dst": packet.destination_port}
    known["direction"] = "original" if traveller.request is None else "reply"
    if body["key"] not in known:
        raise Unknown(f"ct {body['key']}")
    return known[body["key"]]


def _fib(body: Json, traveller: Traveller) -> Any:
    flags = body.get("flags", [])
    flags = [flags] if isinstance(flags, str) else flags
    source = "saddr" in flags
    address = traveller.packet.source if source else traveller.machine.destination
    if body["result"] == "type":
        return "local" if traveller.machine.is_local(address) else "unicast"
    if source and "iif" in flags:
        return bool(traveller.back) and traveller.back == traveller.iif
    raise Unknown(f"fib {body['result']}")


def _number(value: Any, asked: Any) -> int:
    if isinstance(value, dict) and "|" in value:
        total = 0
        for part in value["|"]:
            total |= _number(part, asked)
        return total
    if isinstance(value, list):
        return sum(_number(part, asked) for part in value)
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        named = NAMES.get(_asked_for(asked), {})
        if value in named:
            return named[value]
        if value.isdigit():
            return int(value)
    raise Unknown(f"the value {value!r}")


def _asked_for(asked: Any) -> str:
    while isinstance(asked, dict):
        kind, body = next(iter(asked.items()))
        if kind == "&":
            asked = body[0]
        else:
            return str(body.get("key") or body.get("field") or "") if isinstance(body, dict) else ""
    return ""


def _order(value: Any, asked: Any) -> int:
    address = parse_address(value) if isinstance(value, str) else None
    return int(ip_address(address)) if address else _number(value, asked)


_LOADS: dict[str, Callable[[Any, Traveller], Any]] = {
    "payload": _payload,
    "meta": lambda body, traveller: _meta(body["key"], traveller),
    "ct": _ct,
    "fib": _fib,
}
