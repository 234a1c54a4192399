"""Tracks which generations of the ruleset our own commits made (pure).

Every commit of any process raises the generation of a network namespace by one. A commit that names the generation it was
made for is refused if another came first; so if it succeeds, it is the only change between two generations.
"""

_NUMBERS = 1 << 32


class OwnSteps:
    """The last unbroken run of our own commits, to any table of ours; shared by all that use one socket."""

    def __init__(self) -> None:
        self._first = self._last = -1

    def add(self, generation: int) -> None:
        """Notes that a commit made for `generation` succeeded: the next generation is ours."""
        if generation != self._last:
            self._first = generation
        self._last = (generation + 1) % _NUMBERS

    def covers(self, known: int, generation: int) -> bool:
        """Returns whether all changes between `known` and a later generation are ours."""
        return (generation - known) % _NUMBERS <= (self.follow(known) - known) % _NUMBERS

    def follow(self, known: int) -> int:
        """Returns the newest generation that differs from `known` only by commits of ours."""
        run = (self._last - self._first) % _NUMBERS
        return self._last if (known - self._first) % _NUMBERS <= run else known
