"""Imports without garbage collection, authorities and plugins: modules stay anyway, and all these take a good part of a command's start."""

import gc
import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_WHILE_IMPORTING = {
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}


def import_all(modules: Iterable[str]) -> None:
    """Imports modules by name, and exempts their objects from all later garbage collections."""
    gc.disable()
    try:
        with _without_extras():
            for module in modules:
                importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _without_extras() -> Iterator[None]:
    """Hides the system's authorities: aiohttp reads all of them twice when it is imported, for two TLS contexts (40 ms, 2 MB). All our
    connections have contexts of their own, which are made later. Keeps pydantic from looking for plugins in all that is installed."""
    before = {name: os.environ.get(name) for name in _WHILE_IMPORTING}
    os.environ.update(_WHILE_IMPORTING)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
