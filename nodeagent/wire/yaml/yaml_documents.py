"""YAML text as plain values with line numbers. What the values mean is decided elsewhere.

Scalars are read as Kubernetes' own parser (sigs.k8s.io/yaml) reads them: YAML 1.1 booleans, no timestamps and no
base-60 numbers, so ``2026-01-01T00:00:00Z`` stays text. A key that appears twice is an error, as it is for kubectl.
An entry whose value is null is dropped: the API treats null and absent alike.

PyYAML's C parser composes the nodes; the values are built here instead of by its constructors, which doubles the
speed (10,000 services with 10 endpoints each: 2 s instead of 4 s) and keeps the nodes at hand for line numbers.
"""

import re
from collections.abc import Generator, Iterator
from functools import lru_cache

import yaml
from msgspec import Struct

Value = bool | int | float | str | list["Value"] | dict[str, "Value"] | None

MAX_DEPTH = 100
MAX_BROKEN = 20
MAX_REPEATED = 100_000
"""Values of one document that aliases stand for, those within others counted again. Nobody writes so many by hand, and a
few hundred bytes can mean more of them than fit in memory."""

_SEPARATOR = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_INT = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_LONGEST_NUMBER = 64
_LOOKED_AT = 4096
"""Characters; longer text is not a number that anybody meant, and reading it takes long."""
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(spelled for word in ("true", "yes", "on") for spelled in (word, word.capitalize(), word.upper()))
_FALSE = frozenset(spelled for word in ("false", "no", "off") for spelled in (word, word.capitalize(), word.upper()))

_PLAIN = "plain"
_TAG = "tag:yaml.org,2002:"
_STR = _TAG + "str"
_TYPED = {_TAG + "null": (), _TAG + "bool": (bool,), _TAG + "int": (int,), _TAG + "float": (int, float)}


class YamlFault(Struct, frozen=True):
    """A document that cannot be read: the line (from 1) and the reason, in one line of text."""

    line: int
    reason: str


class YamlTree(Struct, frozen=True):
    """One document as nodes, not interpreted yet. `above`: lines of text before the tree's own."""

    node: yaml.Node
    above: int

    def line(self, mark: yaml.Mark) -> int:
        """Returns the line, from 1, of a mark of the tree."""
        return int(self.above + mark.line + 1)


class YamlDocument(Struct, frozen=True):
    """One document: its value, and the node tree it was built from. `above`: lines of text before the tree's own."""

    value: Value
    node: yaml.Node
    above: int

    def line_of(self, path: str) -> int:
        """Returns the line (from 1) of what `path` (msgspec's spelling: ``$.spec.ports[0].port``) names, or its closest parent."""
        node, line = self.node, self.node.start_mark.line
        for field, index in _STEP.findall(path):
            if field and isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == field), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line, found[1]
            elif index and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
                node = node.value[int(index)]
                line = node.start_mark.line
            else:
                break
        return self.above + line + 1


def documents(text: str, *, above: int = 0, last_wins: bool = False) -> Iterator[YamlDocument | YamlFault]:
    """Yields the documents of a stream, in order. After a broken one, reading continues at the next ``---``.

    above: lines of the file that come before `text`. last_wins: a key may appear twice, the last one counts.
    """
    for tree in trees(text, above=above):
        yield tree if isinstance(tree, YamlFault) else _built(tree, last_wins=last_wins)


def _built(tree: YamlTree, *, last_wins: bool) -> YamlDocument | YamlFault:
    try:
        return YamlDocument(_Builder(last_wins=last_wins).value(tree.node), tree.node, tree.above)
    except UnreadableNode as error:
        return YamlFault(tree.above + error.line + 1, error.reason)
    except RecursionError:
        return YamlFault(tree.line(tree.node.start_mark), "an alias contains itself")


def trees(text: str, *, above: int = 0) -> Iterator[YamlTree | YamlFault]:
    """Yields the documents of a stream as nodes, in order. After a broken one, reading continues at the next ``---``.

    A line of a document's content cannot begin with ``---`` (YAML 1.1, c-forbidden), so that is a safe place.
    above: lines of the file that come before `text`.
    """
    start: int | None = 0
    broken = 0
    while start is not None:
        skipped = text.count("\n", 0, start)
        if broken > MAX_BROKEN:
            yield YamlFault(above + skipped + 1, "too many broken documents, the rest of the file is not read")
            return
        broken_at = yield from _trees(text[start:], above + skipped)
        broken += 1
        start = None if broken_at is None else _separator_after(text, start, broken_at - above)


def _trees(text: str, above: int) -> Generator[YamlTree | YamlFault, None, int | None]:
    """Yields the documents up to the end or to a syntax error; returns the line of the error (from 0).

    above: lines of the file before `text`.
    """
    loader: _Loader | None = None
    line = 0
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            line = node.start_mark.line
            yield YamlTree(node, above)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark is not None else line
        line = min(line, text.rstrip().count("\n"))
        yield YamlFault(above + line + 1, _one_line(error.problem or error.context or "not YAML"))
        return above + line
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        yield YamlFault(above + line + 1, _one_line(f"{error.reason} (character {error.character!r})"))
        return above + line
    finally:
        if loader is not None:
            loader.dispose()
    return None


def _separator_after(text: str, start: int, line: int) -> int | None:
    """Returns the offset of the first ``---`` after offset `start` that is not above `line` (from 0); None without a separator."""
    beginning = 0
    for _ in range(line):
        beginning = text.find("\n", beginning) + 1 or len(text)
    found = _SEPARATOR.search(text, max(beginning, start + 1))
    return found.start() if found is not None else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


class UnreadableNode(Exception):
    """A node that is not valid here. line: from 0, within its tree."""

    def __init__(self, node: yaml.Node, reason: str) -> None:
        super().__init__(reason)
        self.line: int = node.start_mark.line
        self.reason = reason


class _Loader(yaml.CSafeLoader):
    """Composes nodes; a plain scalar gets the tag `_PLAIN` and is interpreted when its value is built."""

    depth = 0

    def resolve(self, kind: type[yaml.Node], _value: str | None, implicit: tuple[bool, bool]) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _STR
        return _TAG + ("map" if kind is yaml.MappingNode else "seq")

    def descend_resolver(self, _node: yaml.Node | None, _index: object) -> None:
        """Called before every node is read. The C composer recurses without a limit of its own and would crash."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "nested too deeply", None)

    def ascend_resolver(self) -> None:
        """Called after every node was read."""
        self.depth -= 1


class _Builder:
    """Builds the value of one document; nodes that aliases share become one shared value.

    last_wins: of a key that appears twice the last counts, as in kubeconfigs; else it is an error.
    """

    def __init__(self, *, last_wins: bool = False) -> None:
        self._collections: dict[yaml.Node, tuple[Value, int]] = {}
        self._last_wins = last_wins
        self._values = self._repeated = 0

    def value(self, node: yaml.Node) -> Value:
        self._values += 1
        if isinstance(node, yaml.ScalarNode):
            return scalar(node)
        known = self._collections.get(node)
        if known is not None:
            return self._alias_value(node, *known)
        before = self._values
        built = self._mapping(node) if isinstance(node, yaml.MappingNode) else self._sequence(node)
        self._collections[node] = built, self._values - before
        return built

    def _alias_value(self, node: yaml.Node, built: Value, values: int) -> Value:
        """Returns the value of an alias, and counts its `values`."""
        self._values += values
        self._repeated += values + 1
        if self._repeated > MAX_REPEATED:
            raise UnreadableNode(node, f"aliases stand for more than {MAX_REPEATED} values")
        return built

    def _sequence(self, node: yaml.Node) -> Value:
        if node.tag != _TAG + "seq":
            raise UnreadableNode(node, f"the tag {node.tag} is not supported")
        return [self.value(entry) for entry in node.value]

    def _mapping(self, node: yaml.MappingNode) -> Value:
        if node.tag != _TAG + "map":
            raise UnreadableNode(node, f"the tag {node.tag} is not supported")
        entries: dict[str, Value] = {}
        merged: dict[str, Value] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UnreadableNode(key, "a key must be text")
            if key.value == "<<" and key.tag == _PLAIN:
                merged = {**self._merged(value), **merged}
            elif key.value in entries and not self._last_wins:
                raise UnreadableNode(key, f"the key {key.value} appears twice")
            else:
                entries[key.value] = self.value(value)
        return {key: value for key, value in {**merged, **entries}.items() if value is not None}

    def _merged(self, node: yaml.Node) -> dict[str, Value]:
        """Returns the content of ``<<:``: of several mappings the earlier ones have precedence."""
        value = self.value(node)
        mappings = value if isinstance(value, list) else [value]
        merged: dict[str, Value] = {}
        for mapping in mappings:
            if not isinstance(mapping, dict):
                raise UnreadableNode(node, "only mappings can be merged")
            merged = {**mapping, **merged}
        return merged


def scalar(node: yaml.ScalarNode) -> bool | int | float | str | None:
    """Returns the value of a scalar of a tree. Raises UnreadableNode for a tag that is not known."""
    if node.tag == _PLAIN:
        return plain_scalar(node.value)
    try:
        return tagged_scalar(node.tag, node.value)
    except ValueError as error:
        raise UnreadableNode(node, str(error)) from None


def tagged_scalar(tag: str, text: str) -> bool | int | float | str | None:
    """Returns the value of text with an explicit tag. Raises ValueError for a tag that is not known, or contradicts the text."""
    if tag == _STR:
        return text
    types = _TYPED.get(tag)
    if types is None:
        raise ValueError(f"the tag {tag} is not supported")
    value = plain_scalar(text)
    if value is not None and type(value) not in types:
        raise ValueError(f"{text!r} is not what its tag {tag} says")
    return value


def plain_scalar(text: str) -> bool | int | float | str | None:
    """Returns the value of an unquoted scalar."""
    return text if len(text) > _LONGEST_NUMBER else _short_scalar(text)


@lru_cache(maxsize=1 << 15)
def _short_scalar(text: str) -> bool | int | float | str | None:
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "+-.0123456789":
        return text
    if _INT.fullmatch(text):
        return _integer(text)
    return float(text.replace("_", "")) if _FLOAT.fullmatch(text) else text


def is_long_number(text: str) -> bool:
    """Returns whether unquoted text looks like a number, but has too many digits to be read as one. Only its beginning is examined."""
    digits = text[:_LOOKED_AT]
    return len(text) > _LONGEST_NUMBER and bool(_INT.fullmatch(digits) or _FLOAT.fullmatch(digits))


def _integer(text: str) -> int | str:
    """Returns a number in base 2, 8 (``017`` or ``0o17``), 10 or 16; the text itself if a digit does not fit the base."""
    digits = text.replace("_", "").lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    try:
        number = int(digits, 8 if octal else 0)
    except ValueError:
        return text
    return -number if text[0] == "-" else number
