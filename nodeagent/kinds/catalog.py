"""Finds the kinds: every module of this package that has `ROWS`."""

import pkgutil
from functools import cache
from importlib import import_module

from nodeagent import kinds
from nodeagent.kinds.description.resources import Catalog, Resource


@cache
def rows() -> tuple[Resource, ...]:
    """Returns the rows of all kinds, in no particular order."""
    modules = (import_module(f"{kinds.__name__}.{found.name}") for found in pkgutil.iter_modules(kinds.__path__))
    return tuple(row for module in modules for row in getattr(module, "ROWS", ()))


def all_kinds() -> Catalog:
    """Returns a catalog of all kinds."""
    return Catalog(rows())
