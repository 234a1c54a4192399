"""Sequences that are held by the thousand, in a form that takes little memory: the values are made again when they are read."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)

SEPARATOR = ","
"""Between the addresses in one text."""


class Packed(Sequence[T_co]):
    """Equal to any sequence of equal values. What inherits from it iterates, knows its length, and says what it consists of."""

    __slots__ = ()

    @abstractmethod
    def _content(self) -> tuple[object, ...]:
        """Returns everything of which the values are made; equal only for equal values."""

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            return type(self) is type(other) and self._content() == other._content()
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
