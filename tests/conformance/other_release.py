"""An image of another release than this tree's: another version, and tables of another schema with a set of another name."""

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from types import ModuleType
from typing import IO

import nodeagent
from nodeagent.proxy.dataplane.program import schema as table_schema

HOME = Path("usr/lib/nodeagent")
CHANGES: dict[ModuleType, tuple[tuple[str, str], ...]] = {
    nodeagent: ((r'(?m)^__version__ = "[^"]+"', '__version__ = "{version}"'),),
    table_schema: (
        (r"(?m)^SCHEMA = \d+", "SCHEMA = {schema}"),
        (r'(?m)^HAIRPIN = "hairpin"', 'HAIRPIN = "hairpin-of-another-release"'),
    ),
}
Files = dict[str, bytes]


def make(image: Path, folder: Path, *, version: str, schema: int) -> Path:
    """An archive as `docker save` writes it: the layer of this tree's image, and over it one with what differs."""
    with tarfile.open(image) as archive:
        (manifest,) = json.loads(_read(archive, "manifest.json"))
        base, config = _read(archive, manifest["Layers"][0]), json.loads(_read(archive, manifest["Config"]))
    with tarfile.open(fileobj=io.BytesIO(base)) as layer:
        changed = _packed(_changes(layer, version, schema))
    config["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(changed).hexdigest()}")
    del config["history"]
    manifest = {"Config": "config.json", "RepoTags": [f"nodeagent:{version}"], "Layers": ["base.tar", "changed.tar"]}
    files = {
        "base.tar": base,
        "changed.tar": changed,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps([manifest]).encode(),
    }
    path = folder / f"nodeagent-{version}.tar"
    path.write_bytes(_packed(files))
    return path


def _changes(layer: tarfile.TarFile, version: str, schema: int) -> Files:
    """Sources as they are there; what was compiled of them before is taken away, as layers do it."""
    found: Files = {}
    for module, replacements in CHANGES.items():
        path = HOME / _place(module)
        text = _read(layer, f"./{path}").decode()
        for pattern, replacement in replacements:
            text, count = re.subn(pattern, replacement.format(version=version, schema=schema), text)
            assert count == 1, (path, pattern)
        found[str(path)] = text.encode()
        found[str(path.parent / "__pycache__" / f".wh.{path.stem}.cpython-311.pyc")] = b""
    return found


def _place(module: ModuleType) -> Path:
    """Where its source is, from the directory that holds the package."""
    assert module.__file__ is not None
    assert nodeagent.__file__ is not None
    return Path(module.__file__).relative_to(Path(nodeagent.__file__).parents[1])


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file: IO[bytes] | None = archive.extractfile(name)
    assert file is not None, name
    return file.read()


def _packed(files: Files) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()
