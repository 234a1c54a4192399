"""Sequences that are held by the thousand, in a form that takes little memory: the values are made again when they are read."""

from collections.abc import Sequence
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)

SEPARATOR = ","
"""Between the addresses in one text."""


class Packed(Sequence[T_co]):
    """Equal to any sequence of equal values. What inherits from it iterates, knows its length, and compares itself with its own kind."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
