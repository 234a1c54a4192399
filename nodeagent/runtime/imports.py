"""Imports without looks for garbage: what a module leaves stays, and the looks take a good part of a command's start."""

import gc
import importlib
from collections.abc import Iterable


def import_all(modules: Iterable[str]) -> None:
    """Import them by name, and spare what is there then from every later look."""
    gc.disable()
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()
