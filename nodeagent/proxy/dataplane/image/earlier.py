"""A set's elements as they were before some changed, without a second copy of the others."""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import TypeVar, overload

from nodeagent.proxy.dataplane.image.image import Elements

T = TypeVar("T")


class EarlierElements(Mapping[bytes, bytes]):
    """A view. present: the elements now. before: the earlier value of each key that changed since; None: the key was absent.

    As long as nothing has changed it is as fast as a dict. Else a look at all of it makes a copy.
    """

    __slots__ = ("_before", "_present")

    def __init__(self, present: Elements, before: Mapping[bytes, bytes | None]) -> None:
        self._present = present
        self._before = before

    @overload
    def get(self, key: bytes, /) -> bytes | None: ...
    @overload
    def get(self, key: bytes, default: bytes | T, /) -> bytes | T: ...
    def get(self, key: bytes, default: T | None = None, /) -> bytes | T | None:
        if key in self._before:
            value = self._before[key]
            return default if value is None else value
        return self._present.get(key, default)

    def values_at(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Returns what `get` does for each key."""
        before, present = self._before, self._present
        return [before[key] if key in before else present.get(key) for key in keys]

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self.get(key) is not None

    def __len__(self) -> int:
        return len(self._elements())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._elements())

    def keys(self) -> KeysView[bytes]:
        return self._elements().keys()

    def values(self) -> ValuesView[bytes]:
        return self._elements().values()

    def items(self) -> ItemsView[bytes, bytes]:
        return self._elements().items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EarlierElements):
            other = other._elements()
        return self._elements() == other

    __hash__ = None  # type: ignore[assignment]  # as a dict

    def _elements(self) -> Elements:
        if not self._before:
            return self._present
        earlier = {key: value for key, value in self._before.items() if value is not None}
        return {key: value for key, value in self._present.items() if key not in self._before} | earlier


def values_at(elements: Mapping[bytes, bytes], keys: Iterable[bytes]) -> list[bytes | None]:
    """Returns the value of each key; None: it is absent."""
    return elements.values_at(keys) if isinstance(elements, EarlierElements) else [elements.get(key) for key in keys]
