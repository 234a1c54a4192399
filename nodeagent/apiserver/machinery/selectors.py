"""Label and field selectors, with the syntax and messages of k8s.io/apimachinery/pkg/labels and pkg/fields. Pure."""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from nodeagent.kinds.description.formats import label_value, qualified_name
from nodeagent.kinds.description.status import ApiError, bad_request, shown

_TOKEN = re.compile(r"\s*(?:(?P<op>==|!=|=|!|\(|\)|,|<|>)|(?P<word>[^\s=!(),<>]+))")


_SEPARATORS = ","
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_LEAST: Final = -(2**63)
_GREATEST: Final = 2**63 - 1


class Operator(Enum):
    """How a requirement compares a value. If the key is absent, only NOT_IN and ABSENT hold."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "absent"
    GREATER = "gt"
    LESS = "lt"


_HOLD_IF_ABSENT: Final = (Operator.NOT_IN, Operator.ABSENT)


@dataclass(frozen=True, slots=True)
class Requirement:
    """`key operator values`. `bound` is the number that GREATER and LESS compare with."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    bound: int = 0


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; the empty selector matches everything. Requirements are combined once, by key, so that a
    match costs no more than the smaller of the two sets: requirements or labels."""

    requirements: tuple[Requirement, ...] = ()
    _needed: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    _forbidden: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    _allowed: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _denied: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _between: Mapping[str, tuple[int, int]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        needed, forbidden = set[str](), set[str]()
        allowed: dict[str, frozenset[str]] = {}
        denied: dict[str, set[str]] = {}
        between: dict[str, tuple[int, int]] = {}
        for requirement in self.requirements:
            key, values = requirement.key, requirement.values
            match requirement.operator:
                case Operator.ABSENT:
                    forbidden.add(key)
                case Operator.IN:
                    allowed[key] = allowed[key] & values if key in allowed else values
                case Operator.NOT_IN:
                    denied.setdefault(key, set()).update(values)
                case Operator.GREATER | Operator.LESS:
                    between[key] = _narrow(between.get(key, (_LEAST, _GREATEST)), requirement)
            if requirement.operator not in _HOLD_IF_ABSENT:
                needed.add(key)
        object.__setattr__(self, "_needed", frozenset(needed))
        object.__setattr__(self, "_forbidden", frozenset(forbidden))
        object.__setattr__(self, "_allowed", allowed)
        object.__setattr__(self, "_denied", {key: frozenset(values) for key, values in denied.items()})
        object.__setattr__(self, "_between", between)

    def matches(self, values: Mapping[str, str]) -> bool:
        """Returns whether every requirement holds for these labels or fields."""
        keys = values.keys()
        if not keys >= self._needed or not keys.isdisjoint(self._forbidden):
            return False
        # All needed keys are present, so the loops below are bounded by the number of labels.
        if any(values[key] not in allowed for key, allowed in self._allowed.items()):
            return False
        if self._denied and any(values[key] in self._denied[key] for key in keys & self._denied.keys()):
            return False
        return all(_is_between(values[key], wanted) for key, wanted in self._between.items())


def _narrow(wanted: tuple[int, int], requirement: Requirement) -> tuple[int, int]:
    least, greatest = wanted
    if requirement.operator is Operator.GREATER:
        return max(least, requirement.bound + 1), greatest
    return least, min(greatest, requirement.bound - 1)


def _is_between(text: str, wanted: tuple[int, int]) -> bool:
    number = _number(text)
    return number is not None and wanted[0] <= number <= wanted[1]


def _number(text: str) -> int | None:
    """Returns the number as strconv.ParseInt reads 64 bits, or None if it is not one."""
    if not _INTEGER.match(text):
        return None
    found = int(text)
    return found if _LEAST <= found <= _GREATEST else None


EVERYTHING = Selector()


def parse_labels(text: str) -> Selector:
    """Parses a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`. Raises ApiError 400."""
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    while tokens:
        requirements.append(_requirement(tokens, text))
        if tokens and (tokens.popleft() != "," or not tokens):
            raise _unparsable(text)
    return Selector(tuple(requirements))


def _tokens(text: str) -> deque[str]:
    tokens, position = deque[str](), 0
    stripped = text.strip()
    while position < len(stripped):
        found = _TOKEN.match(stripped, position)
        if found is None:
            raise _unparsable(text)
        tokens.append(found["op"] or found["word"])
        position = found.end()
    return tokens


def _requirement(tokens: deque[str], text: str) -> Requirement:
    key = tokens.popleft()
    if key == "!":
        return Requirement(_key(tokens.popleft() if tokens else ""), Operator.ABSENT)
    key = _key(key)
    if not tokens or tokens[0] == ",":
        return Requirement(key, Operator.EXISTS)
    operator = tokens.popleft()
    match operator:
        case "=" | "==" | "!=":
            value = tokens.popleft() if tokens and tokens[0] != "," else ""
            equal = Operator.NOT_IN if operator == "!=" else Operator.IN
            return Requirement(key, equal, frozenset({_value(value, key)}))
        case "in" | "notin":
            return Requirement(key, Operator(operator), _values(tokens, key, text))
        case ">" | "<" if tokens:
            bound = _number(tokens.popleft())
            if bound is None:
                raise bad_request("unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer")
            return Requirement(key, Operator.GREATER if operator == ">" else Operator.LESS, bound=bound)
    raise _unparsable(text)


def _values(tokens: deque[str], key: str, text: str) -> frozenset[str]:
    found: set[str] = set()
    if not tokens or tokens.popleft() != "(":
        raise _unparsable(text)
    while tokens:
        token = tokens.popleft()
        if token == ")":  # noqa: S105 - a bracket
            return frozenset(found)
        if token not in _SEPARATORS:
            found.add(_value(token, key))
    raise _unparsable(text)


def _key(token: str) -> str:
    for complaint in qualified_name(token):
        raise _wrong("<nil>", token, complaint)
    return token


def _value(token: str, key: str) -> str:
    for complaint in label_value(token):
        raise _wrong(f"values[0][{key}]", token, complaint)
    return token


def _wrong(field_name: str, value: str, complaint: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {field_name}: Invalid value: {shown(value)}: {complaint}")


def _unparsable(text: str) -> ApiError:
    return bad_request(f'unable to parse requirement: invalid label selector "{text}"')


_TERM = re.compile(r"(?P<key>(?:[^=!\\]|\\.)+)(?P<op>==|!=|=)(?P<value>(?:[^\\]|\\.)*)\Z", re.DOTALL)


def parse_fields(text: str, supported: Sequence[str], refusal: Callable[[str], str]) -> Selector:
    """Parses a field selector: `a=b,c!=d`, with `\\`, `,` and `=` escaped by a backslash.

    Raises ApiError 400 if it cannot be parsed or names a field not in `supported`; `refusal(field)` returns the text for that.
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
        operator = Operator.NOT_IN if found["op"] == "!=" else Operator.IN
        requirements.append(Requirement(key, operator, frozenset({value})))
    return Selector(tuple(requirements))


def _split_terms(text: str) -> list[str]:
    return [term for term in re.findall(r"(?:[^,\\]|\\.)+", text) if term.strip()]
