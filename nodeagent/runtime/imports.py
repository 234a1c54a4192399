"""Imports without garbage collection and without authorities: modules stay anyway, and both take a good part of a command's start."""

import gc
import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def import_all(modules: Iterable[str]) -> None:
    """Imports modules by name, and exempts their objects from all later garbage collections."""
    gc.disable()
    try:
        with _without_authorities():
            for module in modules:
                importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _without_authorities() -> Iterator[None]:
    """Hides the system's authorities: aiohttp reads all of them twice when it is imported, for two TLS contexts (40 ms, 2 MB). All our
    connections have contexts of their own, which are made later."""
    before = {name: os.environ.get(name) for name in _AUTHORITIES}
    os.environ.update(dict.fromkeys(_AUTHORITIES, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
