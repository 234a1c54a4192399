"""Good bytes with something wrong in them."""

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

CORPORA = Path(__file__).parent / "corpora"
"""A file for each target: an input in base64 on each line."""


class Target(NamedTuple):
    """What is attacked. seeds: good input. tokens: what means something there. check: fails unless all is well."""

    name: str
    seeds: Sequence[bytes]
    tokens: Sequence[bytes]
    check: Callable[[bytes], None]

    @property
    def file_name(self) -> str:
        """The name without what a shell or a file system might read in it."""
        return self.name.replace(" ", "-").replace(",", "")

    def corpus(self) -> list[bytes]:
        """Returns what `make fuzz` once found to reach more code, or to fail (`tests/attack/keep_inputs.py`)."""
        path = CORPORA / self.file_name
        return [b64decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@contextmanager
def refused_by(*errors: type[Exception]) -> Iterator[None]:
    """What is done inside may end with one of these errors, which must say why."""
    said = "nothing was refused"
    try:
        yield
    except errors as error:
        said = str(error)
    assert said.strip()
    said.encode()


Edit = tuple[str, int, int, bytes]

_KINDS = st.sampled_from(["set", "cut", "put", "repeat", "drop", "end"])
_PLACE = st.integers(min_value=0, max_value=(1 << 16) - 1)


def mutated(target: Target) -> st.SearchStrategy[bytes]:
    """One of the seeds, changed in a few places; now and then bytes that never were one."""
    piece = st.sampled_from(target.tokens) | st.binary(min_size=1, max_size=8)
    edit = st.tuples(_KINDS, _PLACE, st.integers(min_value=0, max_value=64), piece)
    changed = st.builds(_changed, st.sampled_from(target.seeds), st.lists(edit, min_size=1, max_size=4))
    return st.one_of(changed, changed, changed, st.binary(max_size=200))


def _changed(seed: bytes, edits: list[Edit]) -> bytes:
    data = seed
    for kind, place, size, piece in edits:
        at = place % (len(data) + 1)
        match kind:
            case "set":
                data = data[:at] + piece + data[at + len(piece) :]
            case "cut":
                data = data[:at] + data[at + size :]
            case "put":
                data = data[:at] + piece + data[at:]
            case "repeat":
                data = data[:at] + data[at : at + size] * 3 + data[at + size :]
            case "drop":
                data = data[:at] + piece + data[at + size :]
            case _:
                data = data[:at]
    return data
