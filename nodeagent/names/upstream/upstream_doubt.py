"""Why a server is suspected, and which question tells whether the server fails or only the domain that was asked for. Pure."""

from nodeagent.names.upstream.stub_zones import suffixes
from nodeagent.names.upstream.upstream_question import Asked

DOMAINS = 3
"""If questions about so many domains fail, it is not the domains."""


class Doubt:
    """The last questions that a server answered well, and those that it did not since then; at most `DOMAINS` of each, one for each
    domain."""

    __slots__ = ("_failed", "_good")

    def __init__(self) -> None:
        self._good: dict[bytes, Asked] = {}
        self._failed: dict[bytes, Asked] = {}

    def __bool__(self) -> bool:
        return bool(self._failed)

    def answered(self, asked: Asked) -> None:
        """Notes a question that was answered well: nothing is suspected any more."""
        self._failed.clear()
        _put(self._good, asked)

    def failed(self, asked: Asked) -> None:
        """Notes a question that was answered late, with an error or not at all."""
        _put(self._failed, asked)

    def passed(self, asked: Asked) -> None:
        """Notes that a probe with this question was answered well: that says nothing of other domains."""
        if domain_of(asked.name) in self._failed:
            self._failed.clear()

    @property
    def is_broad(self) -> bool:
        """Whether questions about several domains failed."""
        return len(self._failed) >= DOMAINS

    def question(self) -> Asked | None:
        """Returns what to ask the server: one of the questions that failed, if they are about several domains; else one that it answered
        before, about another domain; None without one."""
        if self.is_broad:
            return next(reversed(self._failed.values()))
        return next((asked for domain, asked in reversed(self._good.items()) if domain not in self._failed), None)


def domain_of(name: bytes) -> bytes:
    """Returns the last two labels of a name in wire form."""
    return (*suffixes(name),)[-3:][0]


def _put(questions: dict[bytes, Asked], asked: Asked) -> None:
    domain = domain_of(asked.name)
    questions.pop(domain, None)
    questions[domain] = asked
    if len(questions) > DOMAINS:
        del questions[next(iter(questions))]
