"""The options as a flat list of keys, for files, environment variables and flags."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Union, get_args, get_origin

from pydantic.fields import FieldInfo

from nodeagent.config.descriptions import description_of
from nodeagent.config.durations import Duration
from nodeagent.config.options import Group, Options
from nodeagent.config.values import BindAddress, StubServer


class Form(Enum):
    """How the text of a flag or an environment variable becomes a value."""

    TEXT = "text"
    SWITCH = "true or false"
    NUMBER = "number"
    LIST = "comma-separated"


@dataclass(frozen=True, slots=True)
class Key:
    """One option. `group` and `name` are as in files (``traffic``, ``clusterCIDRs``). of: the class of the group."""

    of: type[Group]
    group: str
    name: str
    attribute: str
    form: Form
    unit: str
    default: object
    required: bool

    @property
    def path(self) -> str:
        return f"{self.group}.{self.name}"

    @property
    def description(self) -> str:
        return description_of(self.of, self.attribute)

    @property
    def environment_variable(self) -> str:
        return f"NODEAGENT_{self.group}_{self.attribute}".upper()

    def value_in(self, config: Options) -> object:
        """Returns the value of this option in `config`."""
        return getattr(getattr(config, self.group), self.attribute)


def groups() -> Iterator[tuple[str, type[Group]]]:
    """Yields the groups of options in the order of the reference, by their file key."""
    for name, field in Options.model_fields.items():
        assert isinstance(field.annotation, type)
        assert issubclass(field.annotation, Group)
        yield name, field.annotation


def plain(value: object) -> object:
    """Returns `value` as a YAML file has it: None, booleans, numbers, text, lists."""
    match value:
        case BindAddress() | StubServer() | Duration() | Path():
            return str(value)
        case Enum():
            return value.value
        case tuple():
            return [plain(item) for item in value]
        case _:
            return value


def plain_option(key: Key, value: object) -> object:
    """Like `plain`, for the value of an option: a disabled server is an empty string."""
    return "" if value is None and isinstance(key.default, BindAddress | Path) else plain(value)


def parse_text(form: Form, text: str) -> object:
    """Returns what a file would have for the text of a flag or a variable.

    Raises ValueError if it is not a boolean (as Go's ParseBool reads them) or not a number.
    """
    match form:
        case Form.SWITCH:
            if text in {"1", "t", "T", "TRUE", "true", "True"}:
                return True
            if text in {"0", "f", "F", "FALSE", "false", "False"}:
                return False
            raise ValueError(f"must be true or false, not {text!r}")
        case Form.NUMBER:
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"must be a whole number, not {text!r}") from None
        case Form.LIST:
            return [item.strip() for item in text.split(",")] if text.strip() else []
        case Form.TEXT:
            return text


def _form(annotation: object) -> Form:
    if get_origin(annotation) in {Union, UnionType}:
        forms = {_form(member) for member in get_args(annotation) if member is not type(None)}
        return Form.LIST if Form.LIST in forms else Form.TEXT
    if get_origin(annotation) is tuple:
        return Form.LIST
    if annotation is bool:
        return Form.SWITCH
    return Form.NUMBER if annotation is int else Form.TEXT


def _unit(field: FieldInfo) -> str:
    if isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        return ", ".join(f"`{member.value}`" for member in field.annotation)
    assert isinstance(field.json_schema_extra, dict)
    return str(field.json_schema_extra["unit"])


def _keys() -> Iterator[Key]:
    for group_name, group in groups():
        for attribute, field in group.model_fields.items():
            assert field.alias is not None
            yield Key(
                of=group,
                group=group_name,
                name=field.alias,
                attribute=attribute,
                form=_form(field.annotation),
                unit=_unit(field),
                default=None if field.is_required() else field.default,
                required=field.is_required(),
            )


KEYS: Mapping[str, Key] = MappingProxyType({key.path: key for key in _keys()})
