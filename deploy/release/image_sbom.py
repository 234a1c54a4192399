"""Prints the bill of materials that an image of ours holds: image_sbom.py IMAGE.tar, as `docker save` writes it."""

import io
import json
import sys
import tarfile

PLACE = "./usr/share/nodeagent/nodeagent.cdx.json"


def bill(image: str) -> bytes:
    """The file in the image's layers. Raises KeyError for an image without it."""
    with tarfile.open(image) as outer:
        (entry,) = json.loads(contents(outer, "manifest.json"))
        for layer in entry["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(contents(outer, layer))) as files:
                if PLACE in files.getnames():
                    return contents(files, PLACE)
    raise KeyError(PLACE)


def contents(archive: tarfile.TarFile, name: str) -> bytes:
    """Of a file. Raises KeyError for one that the archive does not have."""
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()


if __name__ == "__main__":
    sys.stdout.buffer.write(bill(sys.argv[1]))
