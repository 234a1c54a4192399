"""Converts YAML to JSON values, event by event, so that every bound is checked before memory is used. Pure."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Final

import yaml

from nodeagent.apiserver.machinery.bounds import DEEPEST, Values
from nodeagent.kinds.description.documents import Json
from nodeagent.wire.yaml.yaml_documents import is_long_number, plain_scalar, tagged_scalar

MOST_EXPANDED_CHARACTERS: Final = 3 * 1024 * 1024
_MOST_DIRECTIVES: Final = 8
_NO_JSON: Final = frozenset({".inf", ".nan"})
_MERGE: Final = "tag:yaml.org,2002:merge"
_CONTAINERS: Final = frozenset({None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class YamlRefused(ValueError):
    """Not YAML, more of it than is allowed, or a value that JSON cannot hold."""


@dataclass(slots=True)
class _ExpandedSize:
    """The size of a value with every alias in it expanded."""

    values: int = 0
    characters: int = 0


@dataclass(slots=True)
class _OpenContainer:
    """A map or list whose end has not been read yet."""

    value: Json
    weight: _ExpandedSize
    anchor: str | None
    key: str | None = None
    merging: bool = False
    merged: list[Json] = field(default_factory=list)

    @property
    def wants_key(self) -> bool:
        """Whether the next value is a key of this map."""
        return isinstance(self.value, dict) and self.key is None and not self.merging


def read_yaml(body: bytes) -> Json:
    """Returns the only document in `body`; None for an empty body. Raises YamlRefused, and ApiError 413 for too many values."""
    try:
        text = body.decode()
        if sum(line.startswith("%") for line in text.splitlines()) > _MOST_DIRECTIVES:
            raise YamlRefused("too many directives")
        loader = yaml.CSafeLoader(text)
        try:
            return _Document(loader).read()
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlRefused(str(error)) from None


class _Document:
    def __init__(self, loader: yaml.CSafeLoader) -> None:
        self._loader = loader
        self._open: list[_OpenContainer] = []
        self._anchors: dict[str, tuple[Json, _ExpandedSize]] = {}
        self._values = Values()
        self._characters = 0
        self._result: Json = None
        self._documents = 0

    def read(self) -> Json:
        """Reads all events of the stream and returns the document."""
        loader = self._loader
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.ScalarEvent):
                value, is_merge = self._scalar(event)
                self._count(_ExpandedSize(1, len(event.value)))
                self._place(value, event.anchor, _ExpandedSize(1, len(event.value)), merge=is_merge)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._enter(event)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._leave()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise YamlRefused("expected a single document in the stream")
        return self._result

    def _count(self, weight: _ExpandedSize) -> None:
        """Counts a value before it is kept; a key is counted with its value. Raises ApiError 413, YamlRefused."""
        self._values.take(0 if self._open and self._open[-1].wants_key else weight.values)
        self._characters += weight.characters
        if self._characters > MOST_EXPANDED_CHARACTERS:
            raise YamlRefused("document contains excessive aliasing")

    def _enter(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self._open) >= DEEPEST:
            raise YamlRefused(f"exceeded max depth of {DEEPEST}")
        if event.tag not in _CONTAINERS:
            raise YamlRefused(f"{event.tag} is not a JSON value")
        self._count(_ExpandedSize(1))
        value: Json = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_OpenContainer(value, _ExpandedSize(1), event.anchor))

    def _leave(self) -> None:
        done = self._open.pop()
        for source in reversed(done.merged):
            for key, value in source.items():
                done.value.setdefault(key, value)
        self._place(done.value, done.anchor, done.weight)

    def _alias(self, event: yaml.AliasEvent) -> None:
        found = self._anchors.get(event.anchor or "")
        if found is None:
            raise YamlRefused(f"unknown anchor '{event.anchor}'")
        value, weight = found
        if weight.values > self._values.left:
            raise YamlRefused("document contains excessive aliasing")
        self._count(weight)
        self._place(value, None, weight)

    def _place(self, value: Json, anchor: str | None, weight: _ExpandedSize, *, merge: bool = False) -> None:
        """Adds a complete value to the innermost open container, as a key or as a value."""
        if anchor is not None:
            self._anchors[anchor] = (value, weight)
        if not self._open:
            self._result = value
            return
        parent = self._open[-1]
        parent.weight.values += weight.values
        parent.weight.characters += weight.characters
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.merging:
            parent.merging = False
            parent.merged.extend(_sources(value))
        elif parent.key is not None:
            parent.value[parent.key] = value
            parent.key = None
        elif merge:
            parent.merging = True
        elif isinstance(value, dict | list):
            raise YamlRefused("a key is not a text")
        else:
            parent.key = str(value)

    def _scalar(self, event: yaml.ScalarEvent) -> tuple[Json, bool]:
        """Returns (value, whether it is the merge key `<<`)."""
        text = event.value
        if event.tag in (None, "!"):
            if event.tag is not None or not event.implicit[0]:
                return text, False
            if text == "<<":
                return text, True
            if text.lstrip("+-").lower() in _NO_JSON:
                raise YamlRefused(f"{text} is not a JSON value")
            if is_long_number(text):
                raise YamlRefused("a number is too long")
            value: Json = plain_scalar(text)
        elif event.tag == _MERGE:
            return text, True
        else:
            try:
                value = tagged_scalar(event.tag, text)
            except ValueError as error:
                raise YamlRefused(f"{error}, which is not a JSON value") from None
        if isinstance(value, float) and not isfinite(value):
            raise YamlRefused(f"{text} is not a JSON value")
        return value, False


def _sources(value: Json) -> list[Json]:
    """Returns the maps that `<<` merges, later ones first: the first of a list wins."""
    sources = value[::-1] if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise YamlRefused("map merge requires map or sequence of maps as the value")
    return sources
