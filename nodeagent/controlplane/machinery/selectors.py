"""Label and field selectors of list, watch and deletecollection. Pure.

Syntax and messages: k8s.io/apimachinery/pkg/labels and pkg/fields.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nodeagent.controlplane.status import bad_request

_TOKEN = re.compile(r"\s*(?:(?P<op>==|!=|=|!|\(|\)|,|<|>)|(?P<word>[^\s=!(),<>]+))")
_KEY = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")


_SEPARATORS = ","


@dataclass(frozen=True, slots=True)
class Requirement:
    """`key operator values`; the operator is one of in, notin, exists, absent, gt, lt. Absence satisfies `notin`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, values: Mapping[str, str]) -> bool:
        """The requirement holds for these labels or fields."""
        value = values.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        return value is not None and _compare(value, next(iter(self.values)), self.operator)


def _compare(value: str, bound: str, operator: str) -> bool:
    try:
        return int(value) > int(bound) if operator == "gt" else int(value) < int(bound)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; the empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, values: Mapping[str, str]) -> bool:
        """Every requirement holds for these labels or fields."""
        return all(requirement.matches(values) for requirement in self.requirements)


EVERYTHING = Selector()


def parse_labels(text: str) -> Selector:
    """A label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`. Raises ApiError 400."""
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    while tokens:
        requirements.append(_requirement(tokens, text))
        if tokens and (tokens.pop(0) != "," or not tokens):
            raise _unparsable(text)
    return Selector(tuple(requirements))


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    stripped = text.strip()
    while position < len(stripped):
        found = _TOKEN.match(stripped, position)
        if found is None:
            raise _unparsable(text)
        tokens.append(found["op"] or found["word"])
        position = found.end()
    return tokens


def _requirement(tokens: list[str], text: str) -> Requirement:
    key = tokens.pop(0)
    if key == "!":
        return Requirement(_key(tokens.pop(0) if tokens else "", text), "absent")
    key = _key(key, text)
    if not tokens or tokens[0] == ",":
        return Requirement(key, "exists")
    operator = tokens.pop(0)
    match operator:
        case "=" | "==" | "!=":
            value = tokens.pop(0) if tokens and tokens[0] != "," else ""
            return Requirement(key, "notin" if operator == "!=" else "in", frozenset({_value(value, text)}))
        case "in" | "notin":
            return Requirement(key, operator, _values(tokens, text))
        case ">" | "<" if tokens:
            return Requirement(key, "gt" if operator == ">" else "lt", frozenset({_value(tokens.pop(0), text)}))
    raise _unparsable(text)


def _values(tokens: list[str], text: str) -> frozenset[str]:
    if not tokens or tokens.pop(0) != "(" or ")" not in tokens:
        raise _unparsable(text)
    end = tokens.index(")")
    values = frozenset(_value(token, text) for token in tokens[:end] if token not in _SEPARATORS)
    del tokens[: end + 1]
    return values


def _key(token: str, text: str) -> str:
    if not _KEY.match(token):
        raise _unparsable(text)
    return token


def _value(token: str, text: str) -> str:
    if token and not _KEY.match(token):
        raise _unparsable(text)
    return token


def _unparsable(text: str) -> Exception:
    return bad_request(f'unable to parse requirement: invalid label selector "{text}"')


_TERM = re.compile(r"(?P<key>(?:[^=!\\]|\\.)+)(?P<op>==|!=|=)(?P<value>(?:[^\\]|\\.)*)\Z", re.DOTALL)


def parse_fields(text: str, supported: Sequence[str], refusal: Callable[[str], str]) -> Selector:
    """A field selector: `a=b,c!=d`, with `\\`, `,` and `=` escaped by a backslash.

    Raises ApiError 400 when it cannot be read or names a field not `supported`; `refusal(field)` is what is said then.
    """
    requirements = []
    for term in _split_terms(text):
        found = _TERM.match(term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        key = found["key"].strip()
        if key not in supported:
            raise bad_request(refusal(key))
        value = re.sub(r"\\(.)", r"\1", found["value"])
        operator = "notin" if found["op"] == "!=" else "in"
        requirements.append(Requirement(key, operator, frozenset({value})))
    return Selector(tuple(requirements))


def _split_terms(text: str) -> list[str]:
    return [term for term in re.findall(r"(?:[^,\\]|\\.)+", text) if term.strip()]
