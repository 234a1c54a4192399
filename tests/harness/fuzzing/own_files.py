"""Files of our own that come back from a disk or from strangers: saved states and bundles.

What is attacked is below checksum and compression: no mutation of the file itself gets there.
"""

import gzip
import hashlib
import io
import tarfile
import zlib
from datetime import UTC, datetime

from nodeagent.cli.recording import MEMBERS, RECORDING, NotReplayable, decode_recording, read_members
from nodeagent.proxy.source.saved.saved_bytes import SavedObject, decode, encode
from nodeagent.proxy.source.saved.state_origin import StateOrigin, StateUnusable
from tests.harness.fuzzing import watches
from tests.harness.fuzzing.manifests import WEB
from tests.harness.fuzzing.mutation import Target, refused_by
from tests.harness.objects import make_endpoint, make_node, make_slice

OBJECTS: list[list[SavedObject]] = [
    [WEB],
    [make_slice(WEB, [make_endpoint("10.244.0.1", "here")])],
    [make_node("here", ["192.0.2.1"])],
]
STATE = encode(StateOrigin("c", "here", for_names=True), datetime(2026, 1, 1, tzinfo=UTC), OBJECTS)
FIRST_LINE, _, PACKED = STATE.split(b"\n", 2)
RECORDED = (
    b'{"families":["IPv4"],"node":{"cluster_cidrs":[]},"states":[{"key":{"namespace":"a","name":"b"}}],"program":null}'
)


def _check_state(lines: bytes) -> None:
    """Objects, or StateUnusable; and the bytes themselves are no state."""
    packed = zlib.compress(lines, 1)
    digest = hashlib.sha256(packed).hexdigest().encode()
    for content in (b"\n".join((FIRST_LINE, digest, packed)), FIRST_LINE + b"\n" + lines, lines):
        with refused_by(StateUnusable):
            _, batches = decode(content)
            assert all(one.metadata for batch in batches for one in batch)


def _archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("about.json", b"{}"), (RECORDING, RECORDED)):
            member = tarfile.TarInfo(f"{MEMBERS}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()[:4096]


def _check_bundle(archive: bytes) -> None:
    for content in (gzip.compress(archive, 1), archive):
        with refused_by(NotReplayable):
            decode_recording(read_members(io.BytesIO(content), {RECORDING}))


def _check_recording(content: bytes) -> None:
    with refused_by(NotReplayable):
        decode_recording({RECORDING: content})


TARGETS = (
    Target("saved states", (zlib.decompress(PACKED),), watches.TOKENS, _check_state),
    Target(
        "bundles",
        (_archive(),),
        [b"\0", b"ustar\0", b"\xff" * 12, b"7" * 11, b"x", b"L", b"S", b"2", b"g"],
        _check_bundle,
    ),
    Target("recordings", (RECORDED,), watches.TOKENS, _check_recording),
)
