"""kube-proxy as kubeadm installs it: its image from the release's program and Debian's packages, and its manifests."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

from tests.harness.kubernetes.images import DEBIAN, PATH, PLACE, _run
from tests.harness.kubernetes.release import Release

TAG = "registry.k8s.io/kube-proxy:v1.36.2"
PACKAGES = "iptables,nftables,conntrack,kmod,ipset"
MANIFESTS = Path(__file__).parents[2] / "takeover" / "kube-proxy.yaml"


def manifests(server: str, mode: str) -> str:
    """What kubeadm applies, for this API server."""
    return MANIFESTS.read_text().replace("SERVER", server).replace('"MODE"', json.dumps(mode))


def image(release: Release, place: Path = PLACE) -> Path:
    """Its archive, for `ctr image import`; that of an earlier call where nothing has changed since. Raises LabError."""
    program = release.find("kube-proxy")
    digest = hashlib.sha256(program.read_bytes() + f"{DEBIAN} {PACKAGES} {TAG}".encode()).hexdigest()[:16]
    archive = place / f"kube-proxy-{digest}.tar"
    if not archive.exists():
        place.mkdir(parents=True, exist_ok=True)
        system, own = (place / f"kube-proxy-{os.getpid()}.{part}" for part in ("system", "own"))
        try:
            _make_system(system)
            with tarfile.open(own, "w") as layer:
                layer.add(program, "usr/local/bin/kube-proxy")
            _write(archive, (system, own))
        finally:
            system.unlink(missing_ok=True)
            own.unlink(missing_ok=True)
    return archive


def _make_system(path: Path) -> None:
    options = ["--quiet", "--variant=minbase", "--format=tar", f"--include={PACKAGES}"]
    _run("Debian's packages", "mmdebstrap", *options, DEBIAN, str(path))


def _write(path: Path, layers: tuple[Path, ...]) -> None:
    """As `docker save` does, without compression."""
    digests = [hashlib.sha256(layer.read_bytes()).hexdigest() for layer in layers]
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Env": [PATH]}, "rootfs": rootfs}).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    members = [f"{digest}/layer.tar" for digest in digests]
    manifest = [{"Config": name, "RepoTags": [TAG], "Layers": members}]
    unfinished = path.with_suffix(f".{os.getpid()}")
    with tarfile.open(unfinished, "w") as archive:
        for member, layer in zip(members, layers, strict=True):
            archive.add(layer, member)
        for member, data in ((name, config), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    unfinished.rename(path)
