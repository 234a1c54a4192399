"""Reads our table with Debian's Python bindings of libnftables, to compare with our own reader.

The bindings are GPL-2.0: only this module imports them, on demand, so that no daemon of ours loads them. In a virtual
environment they come from the system's directory.
"""

import importlib.util
import json
import shutil
import subprocess
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
MOST_READ_TWICE = 20_000
"""The most elements of a set that libnftables reads too: it needs half a second for as many."""
_FAMILIES = {Family.IPV4: "ip", Family.IPV6: "ip6"}


class NoSecondReader(Exception):
    """The bindings or libnftables are not installed; the message says what to install."""


class SecondReader:
    """Lists tables through libnftables. program: whether to run `nft` if the bindings do not exist, which takes longer.

    The constructor raises NoSecondReader if there is neither.
    """

    def __init__(self, directory: Path = SYSTEM_PACKAGES, *, program: bool = False) -> None:
        self._nftables = _open(directory, program=program)
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


def _open(directory: Path, *, program: bool) -> Any:
    try:
        return _load(directory).Nftables()
    except NoSecondReader:
        if program and (found := shutil.which("nft")):
            return _Program(found)
        raise
    except OSError as error:
        raise NoSecondReader(f"libnftables cannot be loaded ({error}): install libnftables1") from error


class _Program:
    """Runs `nft`, with what is used here of the bindings' interface."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._options: dict[str, bool] = {}

    def set_json_output(self, wanted: bool) -> None:
        self._options["--json"] = wanted

    def set_handle_output(self, wanted: bool) -> None:
        self._options["--handle"] = wanted

    def cmd(self, command: str) -> tuple[int, str, str]:
        options = [name for name, wanted in self._options.items() if wanted]
        done = subprocess.run([self._path, *options, command], capture_output=True, text=True, check=False)  # noqa: S603 - nft
        return done.returncode, done.stdout, done.stderr


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
