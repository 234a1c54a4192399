"""A release from a tag, made twice in two places: the same bytes, a good signature, packages without faults, a wheel that works alone."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodeagent import __version__
from tests.harness.documented_commands import run_by
from tests.harness.tagged_clone import MAINTAINER, clone, clone_of

RELEASES = ("deb12", "deb13", "ubuntu24.04", "ubuntu26.04")
ARCHITECTURES = ("amd64", "arm64")
PACKAGES = [f"nodeagent_{__version__}-1~{release}_{which}.deb" for release in RELEASES for which in ARCHITECTURES]
HERE = "tests/boot/release/test_whole_release.py"
SIGNATURE = "SHA256SUMS.asc"


@pytest.fixture(scope="module")
def keyring() -> Iterator[dict[str, str]]:
    """An environment with a key of its own. The agent's socket needs a short path."""
    with TemporaryDirectory(prefix="keys-") as home:
        env = os.environ | {"GNUPGHOME": home}
        make = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", MAINTAINER, "ed25519", "sign"]
        subprocess.run(make, env=env, check=True, capture_output=True)
        yield env
        subprocess.run(["gpgconf", "--kill", "all"], env=env, check=False)


def make_release(tree: Path, keyring: dict[str, str], umask: int) -> Path:
    output = tree / "dist" / "released"
    result = subprocess.run(
        [tree / "deploy" / "release" / "release.sh", __version__, output],
        env=keyring | {"PYTHON": sys.executable, "KEY": MAINTAINER},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return output


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, keyring: dict[str, str]) -> Path:
    return make_release(clone(tmp_path_factory.mktemp("one") / "tree"), keyring, 0o022)


def sums(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.name != SIGNATURE
    }


def test_everything_is_there(released: Path) -> None:
    made = {path.name for path in released.iterdir()}
    assert made == {
        *PACKAGES,
        *(f"nodeagent-{__version__}{part}.tar" for part in ("", "-amd64", "-arm64")),
        *(f"nodeagent-{__version__}-image-{which}.cdx.json" for which in ARCHITECTURES),
        f"nodeagent-{__version__}.cdx.json",
        f"nodeagent-{__version__}.provenance.json",
        f"nodeagent-{__version__}-py3-none-any.whl",
        f"nodeagent-{__version__}.tar.gz",
        f"nodeagent-chart-{__version__}.tgz",
        f"nodeagent-site-{__version__}.tar.gz",
        "RELEASE_NOTES.md",
        "SHA256SUMS",
        SIGNATURE,
    }


def test_two_builds_of_a_release_are_the_same(
    released: Path, tmp_path_factory: pytest.TempPathFactory, keyring: dict[str, str]
) -> None:
    """In another directory, with another umask, and all that Debian and PyPI gave fetched once."""
    tree = clone_of(released.parents[1], tmp_path_factory.mktemp("another") / "place" / "tree")
    again = make_release(tree, keyring, 0o077)
    assert sums(again) == sums(released)


def test_the_signature_is_good_and_a_changed_file_is_noticed(
    released: Path, keyring: dict[str, str], tmp_path: Path
) -> None:
    commands = "set -o pipefail\n" + "".join(
        block.commands for block in run_by(HERE, "docs/install.md") if "pipx" not in block.commands
    )
    check = partial(subprocess.run, ["bash", "-e"], input=commands, env=keyring, text=True, capture_output=True)
    good = check(cwd=released)
    files = len(list(released.iterdir()))
    assert (good.returncode, good.stdout.count(": OK\n")) == (0, files - 2 + files - 3)
    for changed in ("RELEASE_NOTES.md", "SHA256SUMS", f"nodeagent-{__version__}.provenance.json"):
        some = tmp_path / changed
        some.mkdir()
        for name in ("RELEASE_NOTES.md", "SHA256SUMS", SIGNATURE, f"nodeagent-{__version__}.provenance.json"):
            (some / name).write_text((released / name).read_text() + ("\n" if name == changed else ""))
        assert check(cwd=some).returncode != 0
    listed = {line.split()[1] for line in (released / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in released.iterdir()} - {"SHA256SUMS", SIGNATURE}


def test_lintian_finds_no_error(released: Path) -> None:
    packages = [str(released / name) for name in PACKAGES]
    result = subprocess.run(
        ["lintian", "--fail-on", "error,warning", "--allow-root", *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_names_what_it_needs_and_holds_libraries_for_it(released: Path, name: str, tmp_path: Path) -> None:
    minor = {"deb12": 11, "ubuntu24.04": 12, "deb13": 13, "ubuntu26.04": 14}[name.partition("~")[2].partition("_")[0]]
    show = ["dpkg-deb", "--field", str(released / name), "Depends", "Maintainer"]
    fields = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1})" in fields
    assert {"nftables", "procps"} <= {word.strip(" ,") for word in fields.split()}
    assert f"Maintainer: {MAINTAINER}" in fields
    subprocess.run(["dpkg-deb", "--extract", released / name, tmp_path], check=True)
    home = tmp_path / "usr/lib/nodeagent"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[name.removesuffix(".deb").rpartition("_")[2]]
    built = {path.name for path in home.rglob("*.so")}
    assert len(built) > 10
    assert all(f"cpython-3{minor}-{machine}" in one or "abi3" in one for one in built)
    licences = (tmp_path / "usr/share/doc/nodeagent/copyright").read_text()
    libraries = {path.name.split("-")[0] for path in home.glob("*.dist-info")} - {"nodeagent"}
    assert {one for one in libraries if f"Files: usr/lib/nodeagent/{one}*" not in licences} == set()
    for document in ("docs/observability/dashboard.json", "docs/observability/alerts.yaml", "docs/examples/shop.yaml"):
        assert (tmp_path / "usr/share/doc/nodeagent" / document).is_file()


def test_the_wheel_works_without_the_tree(released: Path, tmp_path: Path) -> None:
    """Installed as users install it: libraries from an index, no option of ours, and the demo from end to end."""
    (wheel,) = released.glob("*.whl")
    (tmp_path / wheel.name).symlink_to(wheel)
    commands = "".join(block.commands for block in run_by(HERE, "docs/install.md") if "pipx" in block.commands)
    env = {"PATH": f"{tmp_path}/.local/bin:{os.environ['PATH']}", "HOME": str(tmp_path), "COLUMNS": "160"}
    shell = ["bash", "-e"]
    done = subprocess.run(shell, input=commands, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 failed; all is as it must be") == 2
    shown = subprocess.run(["nodeagent", "version"], env=env, cwd="/", capture_output=True, text=True, check=False)
    assert str(tmp_path) in shown.stdout


def test_the_source_archive_builds_the_same_wheel(released: Path, tmp_path: Path) -> None:
    archive = released / f"nodeagent-{__version__}.tar.gz"
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", tmp_path], check=True)
    (tree,) = tmp_path.iterdir()
    env = os.environ | {"SOURCE_DATE_EPOCH": "1769860800"}
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "out")]
    subprocess.run(build, cwd=tree, env=env, check=True, capture_output=True)
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.read_bytes() == (released / wheel.name).read_bytes()
    shutil.rmtree(tree)
