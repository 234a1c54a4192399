"""The container image, as archives, and as the root of a process: without a runtime and without Kubernetes."""

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from nodeagent import __version__

ROOT = Path(__file__).parents[3]
BUILDS = ROOT / "build" / "image"
MOST_BYTES = 120 << 20
MANIFESTS = ROOT / "docs" / "examples"
PROGRAMS = {"usr/bin/nodeagent", "usr/bin/python3", "usr/bin/python3.11", "usr/sbin/nft"}


def archive(build: str, architecture: str) -> Path:
    """`make boot-image` builds the image twice."""
    return BUILDS / build / f"nodeagent-{__version__}-{architecture}.tar"


def unpack(image: Path, root: Path) -> dict[str, object]:
    """Unpacks the image's only layer; its configuration."""
    with tarfile.open(image) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))  # type: ignore[arg-type]
        (layer,) = manifest[0]["Layers"]
        contents = outer.extractfile(layer)
        assert contents is not None
        subprocess.run(["tar", "--extract", "--gzip", "--directory", root], input=contents.read(), check=True)
        config: dict[str, object] = json.load(outer.extractfile(manifest[0]["Config"]))  # type: ignore[arg-type]
    return config


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked image for this machine."""
    folder = tmp_path_factory.mktemp("root")
    unpack(archive("first", "amd64"), folder)
    return folder


def inside(root: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Commands in a network of their own, with the image as the root, read-only but for /run/nodeagent."""
    mounted = (
        f"mount --bind {root} {root}; mount --bind {MANIFESTS} {root}/etc/nodeagent; mount -t proc proc {root}/proc; "
        f"mount -t tmpfs tmpfs {root}/run/nodeagent; mount -o remount,bind,ro {root}; ip link set lo up; "
    )
    script = mounted + "; ".join(f"chroot {root} {command}" for command in commands)
    return subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-ec", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_two_builds_give_the_same_bytes(architecture: str) -> None:
    first, second = (hashlib.sha256(archive(one, architecture).read_bytes()).hexdigest() for one in ("first", "second"))
    assert first == second


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_image_is_small_and_says_what_it_is(architecture: str, tmp_path: Path) -> None:
    config = unpack(archive("first", architecture), tmp_path)
    assert (config["architecture"], config["os"]) == (architecture, "linux")
    assert sum(path.lstat().st_size for path in tmp_path.rglob("*") if path.is_file()) < MOST_BYTES
    document = json.loads((tmp_path / "usr/share/nodeagent/nodeagent.cdx.json").read_text())
    kinds = {component["purl"].partition("/")[0] for component in document["components"]}
    assert kinds == {"pkg:pypi", "pkg:deb"}


def test_nothing_but_the_agent_and_nft_can_be_run(root: Path) -> None:
    programs = {
        str(path.relative_to(root))
        for place in ("bin", "sbin", "usr/bin", "usr/sbin")
        for path in root.glob(f"{place}/*")
    }
    assert programs == PROGRAMS


def test_the_image_programs_a_node_without_writing_to_its_root(root: Path) -> None:
    done = inside(
        root,
        "/usr/bin/nodeagent run --once --manifests /etc/nodeagent --node-name node-a --cluster-cidr 10.244.0.0/16",
        "/usr/bin/nodeagent show",
        "/usr/sbin/nft list map ip nodeagent frontends",
    )
    assert done.returncode == 0, done.stderr
    assert "default/web:http" in done.stdout
    assert "10.96.0.10 . tcp . 80" in done.stdout


def test_the_image_trusts_the_authorities_of_debian(root: Path) -> None:
    counted = "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 100)"
    # In the image's own environment: another one may say where certificates are.
    done = subprocess.run(
        ["/usr/sbin/chroot", root, "/usr/bin/python3", "-c", counted],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stderr
