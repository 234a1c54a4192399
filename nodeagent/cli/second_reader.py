"""Reads our table with Debian's Python bindings of libnftables, to compare with our own reader.

The bindings are GPL-2.0: only this module imports them, on demand, so that no daemon of ours loads them. In a virtual
environment they come from the system's directory.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec

SYSTEM_PACKAGES = Path("/usr/lib/python3/dist-packages")
HOW_TO_INSTALL = "install python3-nftables (Debian, Ubuntu) or python3-nftables (Fedora)"
_FAMILIES = {Family.IPV4: "ip", Family.IPV6: "ip6"}


class NoSecondReader(Exception):
    """The bindings or libnftables are not installed; the message says what to install."""


class SecondReader:
    """Lists tables through libnftables. The constructor raises NoSecondReader if it cannot be loaded."""

    def __init__(self, directory: Path = SYSTEM_PACKAGES) -> None:
        module = _load(directory)
        try:
            self._nftables = module.Nftables()
        except OSError as error:
            raise NoSecondReader(f"libnftables cannot be loaded ({error}): install libnftables1") from error
        self._nftables.set_json_output(True)

    def sets_and_maps(self, family: Family, specs: Mapping[str, SetSpec]) -> list[dict[str, Any]]:
        """Returns these sets of our table in the format of libnftables-json(5). Each is listed by its name: large ones take long.
        Raises OSError with its words when it cannot list."""
        table = f"{_FAMILIES[family]} {schema.TABLE}"
        kinds = {name: "map" if spec.is_map else "set" for name, spec in specs.items()}
        return [one for name, kind in kinds.items() for one in self.listed(f"list {kind} {table} {name}")]

    def text(self, command: str) -> str:
        """Returns the text output of an nft command, with handles. Raises OSError."""
        self._nftables.set_json_output(False)
        self._nftables.set_handle_output(True)
        try:
            status, output, error = self._nftables.cmd(command)
        finally:
            self._nftables.set_handle_output(False)
            self._nftables.set_json_output(True)
        if status != 0:
            raise OSError(f"nft {command}: {' '.join(error.split())}")
        return str(output)

    def listed(self, command: str) -> list[dict[str, Any]]:
        """Returns the JSON output of an nft command. Raises OSError."""
        status, output, error = self._nftables.cmd(command)
        if status != 0:
            raise OSError(f"nft {command}: {' '.join(error.split())}")
        listed: list[dict[str, Any]] = json.loads(output)["nftables"]
        return listed


def _load(directory: Path) -> ModuleType:
    if "nftables" in sys.modules:
        return sys.modules["nftables"]
    path = directory / "nftables" / "__init__.py"
    spec = importlib.util.find_spec("nftables") or importlib.util.spec_from_file_location("nftables", path)
    if spec is None or spec.loader is None or not Path(spec.origin or "").exists():
        raise NoSecondReader(f"there is no nftables module in {directory}: {HOW_TO_INSTALL}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["nftables"] = module
    spec.loader.exec_module(module)
    return module
