"""Makes the interfaces, addresses, routes and forwarding of a bundle in the network namespace of a replay.

A bundle is untrusted: of its words only those are given to `ip` that are names, numbers and addresses behind a known keyword.
"""

import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from nodeagent.cli.recording import NotReplayable
from nodeagent.model.addresses import Family, parse_address
from nodeagent.wire.unreadable import UNREADABLE

ABOUT, INTERFACES = "about.json", "interfaces.txt"
_ROUTES, _RULES = ("routes.txt", "routes6.txt"), ("routing-rules.txt", "routing-rules6.txt")
SURROUNDINGS = frozenset({ABOUT, INTERFACES, *_ROUTES, *_RULES})
_SYSCTLS = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.rp_filter")
_WORD = re.compile(r"[\w./:@+]+[\w./:@+-]*")
_OUTCOMES = frozenset({"blackhole", "unreachable", "prohibit"})
_TYPES = _OUTCOMES | {"unicast", "local", "broadcast", "multicast", "anycast", "throw"}
_OF_ROUTES = frozenset(
    {"via", "dev", "proto", "scope", "src", "metric", "table", "pref", "mtu", "weight", "inet", "inet6"}
)
_OF_RULES = frozenset(
    {"from", "to", "iif", "oif", "fwmark", "lookup", "ipproto", "sport", "dport", "suppress_prefixlength"}
)
_ALONE = frozenset({"onlink", "nexthop", "not"})


class _Address(msgspec.Struct, frozen=True):
    local: str
    prefixlen: int


class _Port(msgspec.Struct, frozen=True):
    """hairpin: a port of a bridge sends frames back out that it received."""

    hairpin: bool = True


class _Kind(msgspec.Struct, frozen=True):
    info_kind: str = ""
    info_slave_data: _Port = _Port()


class _Interface(msgspec.Struct, frozen=True):
    """An interface as `ip -json -details address` shows it."""

    ifindex: int
    ifname: str
    mtu: int
    flags: tuple[str, ...] = ()
    master: str = ""
    linkinfo: _Kind = _Kind()
    addr_info: tuple[_Address, ...] = ()


class _About(msgspec.Struct, frozen=True):
    sysctls: dict[str, str | None] = {}


def make_surroundings(members: Mapping[str, bytes]) -> None:
    """Makes what the bundle has of them; what the kernel refuses is left out. Raises NotReplayable, OSError."""
    try:
        about = msgspec.json.decode(members.get(ABOUT, b"{}"), type=_About)
        interfaces = msgspec.json.decode(members.get(INTERFACES, b"[]"), type=tuple[_Interface, ...])
    except UNREADABLE as error:
        raise NotReplayable(f"another version wrote it: {error}") from error
    for name in _SYSCTLS:
        with suppress(OSError):
            (Path("/proc/sys") / name.replace(".", "/")).write_text(about.sysctls.get(name) or "1")
    _run_batch((), _link_commands(interfaces))
    for family, rules, routes in zip(Family, _RULES, _ROUTES, strict=True):
        if interfaces:
            option = ("-4",) if family is Family.IPV4 else ("-6",)
            _run_batch(option, route_commands(members.get(routes, b"").decode(errors="replace")))
            _run_batch(option, rule_commands(members.get(rules, b"").decode(errors="replace")))


def _run_batch(family: tuple[str, ...], commands: Iterator[str]) -> None:
    argv = ["ip", *family, "-force", "-batch", "-"]
    subprocess.run(argv, input="\n".join(commands), text=True, capture_output=True, check=False)  # noqa: S603 - of words looked at


def _link_commands(interfaces: Sequence[_Interface]) -> Iterator[str]:
    """Yields commands that make bridges, and a pair of veth for all else; the other end takes everything and answers nothing."""
    usable = [
        one
        for one in interfaces
        if _WORD.fullmatch(one.ifname) and all(_WORD.fullmatch(each.local) for each in one.addr_info)
    ]
    yield "link set lo up"
    for one in usable:
        if one.ifname != "lo":
            bridge = one.linkinfo.info_kind == "bridge"
            kind = "type bridge" if bridge else f"type veth peer name replay-{one.ifindex}"
            yield f"link add name {one.ifname} mtu {one.mtu} {kind}"
            yield "" if bridge else f"link set replay-{one.ifindex} mtu {one.mtu} up"
    for one in usable:
        if _WORD.fullmatch(one.master):
            yield f"link set {one.ifname} master {one.master}"
            yield f"link set {one.ifname} type bridge_slave hairpin {'on' if one.linkinfo.info_slave_data.hairpin else 'off'}"
        if "UP" in one.flags:
            yield f"link set {one.ifname} up"
        for each in one.addr_info:
            options = "nodad noprefixroute" if ":" in each.local else "noprefixroute"
            yield f"address replace {each.local}/{each.prefixlen} dev {one.ifname} {options}"


def route_commands(text: str) -> Iterator[str]:
    """Yields a command for each route; gateways come last, because a route must lead to them."""
    lines = text.replace("\n\tnexthop", " nexthop").splitlines()
    for line in sorted(lines, key=lambda line: " via " in line):
        words = line.split()
        start = 2 if words[:1] and words[0] in _TYPES else 1
        destination = " ".join(words[start - 1 : start])
        if destination == "default" or (parse_address(destination.partition("/")[0]) and _WORD.fullmatch(destination)):
            yield f"route replace {' '.join([*words[:start], *_kept(words[start:], _OF_ROUTES)])}"


def rule_commands(text: str) -> Iterator[str]:
    """Yields commands that put these rules in place of those that a namespace begins with; nothing without any."""
    parts = [line.partition(":") for line in text.splitlines()]
    rules = [(number, words.split()) for number, _, words in parts if number.isdecimal()]
    if rules:
        yield from ("rule flush", "rule delete pref 0")
    for number, words in rules:
        kind = [words[-1]] if words and words[-1] in _OUTCOMES else []
        yield f"rule add pref {number} {' '.join([*_kept(words, _OF_RULES), *kind])}"


def _kept(words: Sequence[str], keywords: Collection[str]) -> Iterator[str]:
    """Yields the known keywords with their values."""
    left = iter(words)
    for word in left:
        if word in _ALONE:
            yield word
        elif word in keywords:
            value = next(left, "")
            if _WORD.fullmatch(value):
                yield from (word, value)
                if value in keywords:  # via inet6 ADDRESS
                    yield from filter(_WORD.fullmatch, (next(left, ""),))
