"""The descriptions of the options: the texts below them in `options.py`, which is parsed when the first is asked for.

Only help and the reference show them, so an agent that starts does not parse them.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

from nodeagent.config import options


def description_of(group: type[options.Group], attribute: str) -> str:
    """Returns the description of an option, in one line."""
    return _descriptions()[group.__name__][attribute]


@cache
def _descriptions() -> Mapping[str, Mapping[str, str]]:
    """Returns the descriptions by class and attribute."""
    statements = ast.parse(inspect.getsource(options)).body
    return {node.name: dict(_texts(node.body)) for node in statements if isinstance(node, ast.ClassDef)}


def _texts(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(statements):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
