"""The answers to a number of questions, and how evenly they were spread. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from nodeagent.lab.net.actor_messages import Answer, Failure


class Survey(tuple[Answer, ...]):
    """Answers in the order of the questions."""

    __slots__ = ()

    @property
    def names(self) -> Counter[str]:
        """How often each server answered."""
        return Counter(answer.name for answer in self if not answer.failure)

    @property
    def failures(self) -> Counter[Failure]:
        """How often there was no answer, by kind."""
        return Counter(answer.failure for answer in self if answer.failure)

    @property
    def peers(self) -> set[str]:
        """The client addresses that the servers saw."""
        return {answer.peer for answer in self if not answer.failure}

    @property
    def only(self) -> Answer:
        """The answer, if there was only one question. Raises ValueError otherwise."""
        (answer,) = self
        return answer

    @property
    def slowest(self) -> float:
        """Seconds of the slowest one, with failures; 0 without answers."""
        return max((answer.seconds for answer in self), default=0.0)


def chi_square(counts: Collection[int]) -> float:
    """Returns Pearson's statistic against an even spread; degrees of freedom are one less than the number of counts."""
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 for count in counts) / expected


def evenness(names: Mapping[str, int], servers: Iterable[str]) -> float:
    """Returns the probability (0 to 1) that a fair choice among `servers` is at least as uneven as `names`.

    A server that never answered counts as 0; a name that is not a server makes the result 0. Small values speak against a
    fair choice: with a limit of 0.001, one test in a thousand fails although nothing is wrong.
    """
    servers = list(servers)
    if set(names) - set(servers) or not sum(names.values()):
        return 0.0
    if len(servers) == 1:
        return 1.0
    statistic = chi_square([names.get(server, 0) for server in servers])
    return upper_gamma((len(servers) - 1) / 2, statistic / 2)


def upper_gamma(shape: float, x: float) -> float:
    """Returns the regularised upper incomplete gamma function Q(shape, x), by its lower series (DLMF 8.7.1)."""
    if x <= 0:
        return 1.0
    if x > shape + 700:
        return 0.0
    term = total = 1.0 / shape
    step = shape
    while term > total * 1e-15:
        step += 1
        term *= x / step
        total += term
    return max(0.0, 1.0 - total * math.exp(shape * math.log(x) - x - math.lgamma(shape)))
