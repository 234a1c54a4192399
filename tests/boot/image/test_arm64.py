"""The image for arm64, run by emulation (qemu-user): what it is made of fits together.

qemu has no sockets of NETLINK_NETFILTER: the agent can program no table there, and `nft` says so as soon as it starts.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot.image.test_image import MANIFESTS, archive, unpack

EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
pytestmark = [
    pytest.mark.skipif(EMULATOR is None, reason="no qemu-aarch64-static: apt-get install qemu-user-static"),
    pytest.mark.timeout(900),
]
PYTHON = ("/usr/bin/python3", "-IS")
IMPORT_ALL = """
import importlib, pkgutil, platform, sys
sys.path.insert(0, "/usr/lib/nodeagent")
import nodeagent
names = [found.name for found in pkgutil.walk_packages(nodeagent.__path__, "nodeagent.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(platform.machine(), len(names))
"""
IMPORT_ONE = "import sys; sys.path.insert(0, '/usr/lib/nodeagent'); import msgspec"
FEWEST_MODULES = 300


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The unpacked image, with the emulator beside it: without binfmt_misc it is named with each command."""
    folder = tmp_path_factory.mktemp("arm64")
    unpack(archive("first", "arm64"), folder)
    assert EMULATOR is not None
    shutil.copy(EMULATOR, folder / "emulator")
    shutil.copytree(MANIFESTS, folder / "etc/nodeagent/manifests")
    (folder / "etc/nodeagent/nodeagent.yaml").write_text(
        "apiVersion: nodeagent.io/v1alpha1\n"
        "kind: NodeAgentConfiguration\n"
        "node: {name: node-a}\n"
        "source: {manifests: /etc/nodeagent/manifests}\n"
        "traffic: {clusterCIDRs: [10.244.0.0/16]}\n"
    )
    yield folder
    shutil.rmtree(folder)


def inside(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    argv = ["/usr/sbin/chroot", str(root), "/emulator", *command]
    return subprocess.run(argv, env={}, capture_output=True, text=True, check=False, timeout=600)


def test_the_command_says_its_version(root: Path) -> None:
    done = inside(root, *PYTHON, "/usr/bin/nodeagent", "--version")
    assert done.stdout.startswith("nodeagent, version "), done.stderr


def test_a_configuration_is_checked(root: Path) -> None:
    check = (*PYTHON, "/usr/bin/nodeagent", "config", "check", "--config", "/etc/nodeagent/nodeagent.yaml")
    assert inside(root, *check).returncode == 0
    with (root / "etc/nodeagent/nodeagent.yaml").open("a") as file:
        file.write("typo: 1\n")
    refused = inside(root, *check)
    assert "typo" in refused.stderr + refused.stdout
    assert refused.returncode != 0


def test_every_module_and_library_can_be_imported(root: Path) -> None:
    done = inside(root, *PYTHON, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    machine, count = done.stdout.split()
    assert machine == "aarch64"
    assert int(count) > FEWEST_MODULES


def test_nft_has_its_libraries(root: Path) -> None:
    done = inside(root, "/usr/sbin/nft", "--version")
    assert "nftables v" in done.stdout or "Unable to initialize Netlink socket" in done.stderr, done.stderr


def test_a_library_of_the_other_architecture_would_be_noticed(root: Path, tmp_path: Path) -> None:
    """The control: with the amd64 image's msgspec the imports fail."""
    other = tmp_path / "amd64"
    other.mkdir()
    unpack(archive("first", "amd64"), other)
    assert inside(root, *PYTHON, "-c", IMPORT_ONE).returncode == 0
    library = next((other / "usr/lib/nodeagent/msgspec").glob("_core*.so"))
    replaced = next((root / "usr/lib/nodeagent/msgspec").glob("_core*.so"))
    kept = replaced.read_bytes()
    replaced.write_bytes(library.read_bytes())
    try:
        assert inside(root, *PYTHON, "-c", IMPORT_ONE).returncode != 0
    finally:
        replaced.write_bytes(kept)
