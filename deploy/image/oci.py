"""Writes images as archives: python deploy/image/oci.py DIRECTORY VERSION SECONDS ARCHITECTURE=LAYER.tar ...

Each file is an OCI image layout (github.com/opencontainers/image-spec, image-layout.md) in a tar archive, with the `manifest.json` of
`docker save` beside it, so that `ctr image import`, `docker load`, `podman load` and `skopeo` all take it. There is one file for each
architecture, and one that holds several. SECONDS since 1970 stand for the time of creation; the same layers give the same bytes.
"""

import hashlib
import io
import json
import sys
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NAME = "nodeagent"
_OCI = "application/vnd.oci.image"
_CHUNK = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes under the name of their SHA-256."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        """As descriptors spell it."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    @property
    def path(self) -> str:
        """Within an image layout."""
        return f"blobs/{self.digest.replace(':', '/')}"

    def descriptor(self, **more: object) -> Json:
        """What others refer to it by."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data), **more}


@dataclass(frozen=True, slots=True)
class Image:
    """One architecture's."""

    architecture: str
    layer: Blob
    config: Blob
    manifest: Blob


def main(directory: str, version: str, seconds: str, *layers: str) -> None:
    """Prints the name of each file."""
    images = [image(*layer.split("=", 1), version=version, seconds=int(seconds)) for layer in layers]
    files = {f"{NAME}-{version}-{one.architecture}.tar": [one] for one in images}
    if len(images) > 1:
        files[f"{NAME}-{version}.tar"] = images
    for name, contents in files.items():
        path = Path(directory, name)
        write(path, contents, version)
        print(path)  # noqa: T201 - what the command is for


def image(architecture: str, layer_file: str, *, version: str, seconds: int) -> Image:
    """The image with this layer."""
    created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    layer, difference = compress(Path(layer_file))
    labels = {
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": created,
    }
    config = document(
        "config.v1",
        {
            "created": created,
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Entrypoint": ["/usr/bin/nodeagent"],
                "Cmd": ["run"],
                "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
                "Labels": labels,
                "StopSignal": "SIGTERM",
            },
            "rootfs": {"type": "layers", "diff_ids": [difference]},
            "history": [{"created": created, "created_by": "deploy/image/build.sh"}],
        },
    )
    manifest = document(
        "manifest.v1",
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
            "annotations": labels,
        },
    )
    return Image(architecture, layer, config, manifest)


def compress(layer: Path) -> tuple[Blob, str]:
    """(the compressed layer, the digest of its bytes before)."""
    plain = hashlib.sha256()
    pieces = []
    # Without a time stamp and a name, unlike the file that gzip writes.
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    with layer.open("rb") as file:
        while piece := file.read(_CHUNK):
            plain.update(piece)
            pieces.append(packer.compress(piece))
    return Blob(f"{_OCI}.layer.v1.tar+gzip", b"".join((*pieces, packer.flush()))), f"sha256:{plain.hexdigest()}"


def document(kind: str, contents: Json) -> Blob:
    """A JSON document of the image format."""
    return Blob(f"{_OCI}.{kind}+json", encoded(contents))


def encoded(contents: object) -> bytes:
    """JSON, always the same for the same contents."""
    return json.dumps(contents, sort_keys=True, separators=(",", ":")).encode()


def write(path: Path, images: Iterable[Image], version: str) -> None:
    """One archive with these images."""
    tag = f"{NAME}:{version}"
    images = tuple(images)
    manifests = [one.manifest.descriptor(platform={"os": "linux", "architecture": one.architecture}) for one in images]
    files: dict[str, bytes] = {}
    for one in images:
        files |= {blob.path: blob.data for blob in (one.layer, one.config, one.manifest)}
    named = {"io.containerd.image.name": f"docker.io/library/{tag}", "org.opencontainers.image.ref.name": version}
    if len(images) > 1:
        several = document(
            "index.v1", {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": manifests}
        )
        files[several.path] = several.data
        manifests = [several.descriptor(annotations=named)]
    else:
        manifests = [{**manifests[0], "annotations": named}]
        files["manifest.json"] = encoded(
            [{"Config": one.config.path, "RepoTags": [tag], "Layers": [one.layer.path]} for one in images]
        )
    files["oci-layout"] = encoded({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = encoded({"schemaVersion": 2, "manifests": manifests})
    _archive(path, files)


def _archive(path: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
