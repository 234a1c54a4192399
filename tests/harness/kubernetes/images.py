"""The images that a cluster and Kubernetes' end-to-end tests of the network run, made without a registry.

They hold the programs `agnhost` and `coredns` of KUBERNETES, both in the image agnhost as upstream's has them, and Debian's packages in
place of BusyBox. Their names are those that the release's `e2e.test` asks for.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.runtime.certificates import make_authority, make_certificate
from tests.harness.kubernetes.release import ROOT, Release

PLACE = ROOT / "build" / "kubernetes"
PAUSE = Path(__file__).with_name("pause.c")
DEBIAN = "bookworm"
PACKAGES = (
    "curl",
    "wget",
    "bind9-dnsutils",
    "netcat-openbsd",
    "iproute2",
    "procps",
    "iputils-ping",
    "conntrack",
    "iperf",
)
"""Programs that the tests start in their containers."""
LEFT_OUT = ("/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/lib/*/gconv/*")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """Its tags begin with one of these; its layers, and what it runs."""

    prefixes: tuple[str, ...]
    layers: tuple[str, ...]
    command: dict[str, list[str]]


COREDNS = "registry.k8s.io/coredns/coredns:of-the-release"
_TESTS = "registry.k8s.io/e2e-test-images/"
IMAGES = (
    Image((f"{_TESTS}agnhost:",), ("system", "agnhost", "coredns"), {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]}),
    Image(
        (f"{_TESTS}busybox:", f"{_TESTS}glibc-dns-testing:", "registry.k8s.io/build-image/distroless-iptables:"),
        ("system",),
        {"Cmd": ["sh"]},
    ),
    Image((COREDNS,), ("coredns",), {"Entrypoint": ["/coredns"]}),
    Image(("registry.k8s.io/pause:",), ("pause",), {"Entrypoint": ["/pause"]}),
)


def make(release: Release, place: Path = PLACE) -> Path:
    """Their archive, for `ctr image import`; that of an earlier call where nothing has changed since. Raises LabError."""
    agnhost = release.find("agnhost")
    coredns = release.find("coredns")
    tags = _tags(release)
    directory = place / _digest(agnhost, coredns, Path(__file__), PAUSE, " ".join(tags))
    archive = directory / "images.tar"
    if not archive.exists():
        directory.mkdir(parents=True, exist_ok=True)
        layers = {
            "system": _system(place),
            "agnhost": _agnhost(directory, agnhost),
            "coredns": _layer(directory / "coredns.layer", {"coredns": coredns}),
            "pause": _pause(directory),
        }
        _write(archive, [*tags, COREDNS], layers)
    return archive


def tag(release: Release, name: str) -> str:
    """The newest tag of an image of the tests, for instance of `agnhost`. Raises LabError."""
    return max(one for one in _tags(release) if one.startswith(f"{_TESTS}{name}:"))


def _tags(release: Release) -> list[str]:
    """Sorted: `e2e.test` lists them in another order each time."""
    return sorted(_run("the names of images", str(release.find("e2e.test")), "--list-images").split())


def _digest(*parts: Path | str) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part.read_bytes() if isinstance(part, Path) else part.encode())
    return found.hexdigest()[:16]


def _system(place: Path) -> Path:
    """Debian's packages; they take half a minute, so that they are kept for other releases."""
    layer = place / f"system-{_digest(' '.join((DEBIAN, *PACKAGES, *LEFT_OUT)))}.tar"
    if not layer.exists():
        unfinished = layer.with_suffix(f".{os.getpid()}")
        options = ["--quiet", "--variant=minbase", "--format=tar", f"--include={','.join(PACKAGES)}"]
        options += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
        _run("Debian's packages", "mmdebstrap", *options, DEBIAN, str(unfinished))
        unfinished.rename(layer)
    return layer


def _agnhost(directory: Path, program: Path) -> Path:
    """With the certificate that its server for TLS shows."""
    make_authority(directory)
    make_certificate(directory, "localhost", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    files = {name: directory / name for name in ("localhost.crt", "localhost.key")}
    return _layer(directory / "agnhost.layer", {"agnhost": program, **files})


def _pause(directory: Path) -> Path:
    _run("pause", "gcc", "-static", "-O2", "-o", str(directory / "pause"), str(PAUSE))
    return _layer(directory / "pause.layer", {"pause": directory / "pause"})


def _layer(path: Path, files: Mapping[str, Path]) -> Path:
    with tarfile.open(path, "w") as layer:
        for name, file in files.items():
            layer.add(file, name)
    return path


def _write(path: Path, tags: Sequence[str], layers: Mapping[str, Path]) -> None:
    """As `docker save` does, with each layer once and without compression."""
    digests = {name: hashlib.sha256(layer.read_bytes()).hexdigest() for name, layer in layers.items()}
    configs = [_config(image, [digests[layer] for layer in image.layers]) for image in IMAGES]
    manifest = [
        {
            "Config": _name(config),
            "RepoTags": sorted(tag for tag in tags if tag.startswith(image.prefixes)),
            "Layers": [f"{digests[layer]}/layer.tar" for layer in image.layers],
        }
        for image, config in zip(IMAGES, configs, strict=True)
    ]
    unfinished = path.with_suffix(f".{os.getpid()}")
    with tarfile.open(unfinished, "w") as archive:
        for name, layer in layers.items():
            archive.add(layer, f"{digests[name]}/layer.tar")
        for member, data in (*((_name(one), one) for one in configs), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    unfinished.rename(path)


def _config(image: Image, digests: Sequence[str]) -> bytes:
    layers = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    config = {"Env": [PATH], **image.command}
    return json.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": layers}).encode()


def _name(config: bytes) -> str:
    return f"{hashlib.sha256(config).hexdigest()}.json"


def _run(what: str, *argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise LabError(f"{what}: there is no program {argv[0]} on this machine") from None
    if done.returncode:
        raise LabError(f"{what}: {argv[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
