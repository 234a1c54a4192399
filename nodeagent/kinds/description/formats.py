"""Formats of single values: names, labels, addresses, ports. Each check returns a list of complaints, empty for a valid value."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from string import ascii_lowercase
from typing import Self, TypeAlias

from nodeagent.kinds.description.address_texts import parse_ip
from nodeagent.kinds.description.documents import Json
from nodeagent.kinds.description.status import FieldError, invalid
from nodeagent.model.addresses import LAST_PORT

Check: TypeAlias = Callable[[str], list[str]]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_LONGEST = 63
_NAME_LONGEST = 253
_LONGEST_COMPARED = 1024
"""Characters; longer values exceed every limit here."""
_PORT_NAME_LONGEST = 15
_LINK_LOCAL_MULTICAST = IPv4Network("224.0.0.0/24")
_LINK_LOCAL_SCOPE = 2
"""Of IPv6 multicast (RFC 4291, 2.7)."""
PORT_RANGE = "must be between 1 and 65535, inclusive"
PROTOCOLS = ("SCTP", "TCP", "UDP")
IP_EXAMPLE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def _explain(text: str, pattern: str, *examples: str) -> str:
    shown = ""
    for position, example in enumerate(examples):
        if position == 0:
            shown = f"(e.g. '{example}'"
        else:
            shown += f",  or '{example}'" if position == len(examples) - 1 else f", '{example}'"
    return f"{text} {shown}, regex used for validation is '{pattern}')"


_compiled = cache(re.compile)
"""Compiles a pattern when it is needed first; `re` itself takes as long to find it again as to match a short value."""


@dataclass(frozen=True, slots=True)
class _Format:
    """A pattern, and the complaint about a value that does not match, made once: an object may have 100,000 keys."""

    pattern: str
    complaint: str

    @classmethod
    def of(cls, text: str, pattern: str, *examples: str) -> Self:
        return cls(pattern, _explain(text, pattern, *examples))

    def complaints(self, value: str) -> list[str]:
        """Checks the whole value. One that is too long to be valid anyway is not matched: megabytes would block all threads."""
        is_right = len(value) > _LONGEST_COMPARED or _compiled(self.pattern).fullmatch(value)
        return [] if is_right else [self.complaint]


_DNS_LABEL = _Format.of(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an"
    " alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_DNS_SUBDOMAIN = _Format.of(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end"
    " with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_QUALIFIED_NAME = _Format.of(
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE = _Format.of(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character",
    f"({_QUALIFIED})?",
    "MyValue",
    "my_value",
    "12345",
)
_DATA_KEY = _Format.of(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    r"[-._a-zA-Z0-9]+",
    "key.name",
    "KEY_NAME",
    "key-name",
)
_PORT_NAME = _Format("[-a-z0-9]+", "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")


def dns_label(value: str) -> list[str]:
    """Checks an RFC 1123 label."""
    return [*_too_long(value, LABEL_LONGEST), *_DNS_LABEL.complaints(value)]


def dns_subdomain(value: str) -> list[str]:
    """Checks an RFC 1123 subdomain: labels joined by dots."""
    return [*_too_long(value, _NAME_LONGEST), *_DNS_SUBDOMAIN.complaints(value)]


def _too_long(value: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(value) > limit else []


def qualified_name(value: str) -> list[str]:
    """Checks `prefix/name`, the form of label and annotation keys."""
    complaints: list[str] = []
    prefix, slash, name = value.rpartition("/")
    if slash and not prefix:
        complaints.append("prefix part must be non-empty")
    elif slash:
        complaints.extend(f"prefix part {complaint}" for complaint in dns_subdomain(prefix))
    if not name:
        complaints.append("name part must be non-empty")
    else:
        complaints.extend(f"name part {complaint}" for complaint in _too_long(name, LABEL_LONGEST))
    return complaints + _QUALIFIED_NAME.complaints(name)


def label_value(value: str) -> list[str]:
    """Checks the value of a label; it may be empty."""
    return [*_too_long(value, LABEL_LONGEST), *_LABEL_VALUE.complaints(value)]


def data_key(value: str) -> list[str]:
    """Checks a key of a ConfigMap's or Secret's data, which may be used as a file name."""
    complaints = [*_too_long(value, _NAME_LONGEST), *_DATA_KEY.complaints(value)]
    if value in (".", ".."):
        complaints.append(f"must not be '{value}'")
    elif value.startswith(".."):
        complaints.append("must not start with '..'")
    return complaints


def port_name(value: str) -> list[str]:
    """Checks an IANA service name: at most 15 characters, with a letter."""
    complaints = [f"must be no more than {_PORT_NAME_LONGEST} characters"] if len(value) > _PORT_NAME_LONGEST else []
    complaints += _PORT_NAME.complaints(value)
    if not any(char in ascii_lowercase for char in value[:_LONGEST_COMPARED]):
        complaints.append("must contain at least one letter (a-z)")
    if "--" in value:
        complaints.append("must not contain consecutive hyphens")
    if value and "-" in (value[0], value[-1]):
        complaints.append("must not begin or end with a hyphen")
    return complaints


def port_number(value: int) -> list[str]:
    """Checks a port number: 1 to 65535."""
    return [] if 1 <= value <= LAST_PORT else [PORT_RANGE]


def special_address(text: str, field: str) -> list[FieldError]:
    """Returns errors for an unspecified, loopback or link-local address, which would capture the node's own traffic."""
    address = parse_ip(text)
    if address is None:
        return []
    found = []
    if address.is_unspecified:
        found.append(f"may not be unspecified ({address})")
    if address.is_loopback:
        found.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        found.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if address.is_multicast and _is_link_local_multicast(address):
        found.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return [invalid(field, text, why) for why in found]


def _is_link_local_multicast(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return address in _LINK_LOCAL_MULTICAST
    scope = address.packed[1] & 0x0F
    return address.is_multicast and scope == _LINK_LOCAL_SCOPE


def field_errors(field: str, value: Json, complaints: Iterable[str]) -> list[FieldError]:
    """Returns the complaints as errors of a field."""
    return [invalid(field, value, complaint) for complaint in complaints]
