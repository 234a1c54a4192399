"""YAML and JSON text, with the line of every key."""

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from nodeagent.config.config_problems import ConfigError, ConfigProblem, Origin
from nodeagent.wire.yaml.yaml_documents import UnreadableNode, YamlFault, YamlTree, scalar, trees


@dataclass(frozen=True, slots=True)
class Located:
    """A value of a document, and the origin of its key (or of itself, in a list).

    `value` is None, a scalar, a list of Located, or a dict from text to Located. `first_line`: the line where the text
    of a block scalar (``key: |``) begins, otherwise 0.
    """

    value: object
    origin: Origin
    first_line: int = 0

    @property
    def plain(self) -> object:
        """The value without origins."""
        match self.value:
            case dict() as entries:
                return {key: entry.plain for key, entry in entries.items()}
            case list() as items:
                return [item.plain for item in items]
            case scalar:
                return scalar

    def entries(self) -> Mapping[str, "Located"] | None:
        """Returns the entries of a mapping (empty for null), or None for anything else."""
        if self.value is None:
            return {}
        return self.value if isinstance(self.value, dict) else None


class _Lines:
    """Turns lines of a text into origins. With `fixed`, all are at one line (text in a quoted scalar)."""

    def __init__(self, source: str, first_line: int, fixed: bool) -> None:
        self._source = source
        self._first_line = first_line
        self._fixed = fixed

    def origin(self, line: int) -> Origin:
        """Returns the origin of a line, counted from 1 within the text."""
        return Origin(self._source, self._first_line + (0 if self._fixed else line - 1))


def parse_document(text: str, source: str) -> Located:
    """Returns the one document in `text`; `source` is the file name in origins.

    Raises ConfigError for text that is not YAML, has no or several documents, repeats a key, uses a key that is not
    text, or refers to itself.
    """
    return _parse(text, _Lines(source, 1, fixed=False))


def parse_inner_document(scalar: Located) -> Located:
    """Returns the document in a text value, with origins in the outer file: exact lines for a block scalar.

    Raises ConfigError like `parse_document`.
    """
    assert isinstance(scalar.value, str)
    line = scalar.first_line or scalar.origin.line
    return _parse(scalar.value, _Lines(scalar.origin.source, line, fixed=not scalar.first_line))


def _parse(text: str, lines: _Lines) -> Located:
    found: list[YamlTree] = []
    for tree in trees(text):
        if isinstance(tree, YamlFault):
            raise ConfigError([ConfigProblem(lines.origin(tree.line), "", f"not valid YAML: {tree.reason}")])
        if not _is_empty(tree.node):
            found.append(tree)
    if not found:
        raise ConfigError([ConfigProblem(lines.origin(1), "", "is empty")])
    if len(found) > 1:
        reason = "a second document begins here; a configuration is one document"
        raise ConfigError([ConfigProblem(lines.origin(found[1].line(found[1].node.start_mark)), "", reason)])
    reader = _Reader(found[0], lines)
    root = reader.read(found[0].node, reader.origin(found[0].node.start_mark), "")
    if reader.problems:
        raise ConfigError(reader.problems)
    return root


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.value and node.style in (None, "")


class _Reader:
    """Walks the nodes of one document and collects errors."""

    def __init__(self, tree: YamlTree, lines: _Lines) -> None:
        self._tree = tree
        self._lines = lines
        self._open: set[int] = set()
        self.problems: list[ConfigProblem] = []

    def origin(self, mark: yaml.Mark) -> Origin:
        """Returns the origin of a mark of the tree."""
        return self._lines.origin(self._tree.line(mark))

    def read(self, node: yaml.Node, origin: Origin, path: str) -> Located:
        if id(node) in self._open:
            self.problems.append(ConfigProblem(origin, path, "refers to itself"))
            return Located(None, origin)
        self._open.add(id(node))
        try:
            match node:
                case yaml.MappingNode():
                    return Located(self._mapping(node, path), origin)
                case yaml.SequenceNode():
                    items = enumerate(node.value)
                    return Located(
                        [self.read(item, self.origin(item.start_mark), f"{path}[{n}]") for n, item in items],
                        origin,
                    )
                case yaml.ScalarNode():
                    return self._scalar(node, origin, path)
                case _:
                    raise AssertionError(node)
        finally:
            self._open.remove(id(node))

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Located]:
        entries: dict[str, Located] = {}
        for key_node, value_node in node.value:
            origin = self.origin(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(ConfigProblem(origin, path, "has a key that is not text"))
                continue
            key = str(key_node.value)
            inner = f"{path}.{key}" if path else key
            if key in entries:
                self.problems.append(ConfigProblem(origin, inner, f"already set at line {entries[key].origin.line}"))
                continue
            entries[key] = self.read(value_node, origin, inner)
        return entries

    def _scalar(self, node: yaml.ScalarNode, origin: Origin, path: str) -> Located:
        try:
            value = scalar(node)
        except UnreadableNode as error:
            self.problems.append(ConfigProblem(origin, path, f"cannot be read: {error.reason}"))
            return Located(None, origin)
        block = node.style == "|" and self.origin(node.start_mark).line + 1
        return Located(value, origin, block or 0)
