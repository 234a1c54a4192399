"""Why a server is suspected, and which question tells whether the server fails or only the domain that was asked for. Pure."""

from nodeagent.names.upstream.stub_zones import suffixes
from nodeagent.names.upstream.upstream_question import Asked

DOMAINS = 3
"""If questions about this many domains fail, it is not the domains."""


class Doubt:
    """The last questions that a server answered well, and those that it did not since then; at most `DOMAINS` of each, one for each
    domain. And one that another server for the same names has answered well meanwhile."""

    __slots__ = ("_elsewhere", "_failed", "_good")

    def __init__(self) -> None:
        self._good: dict[bytes, Asked] = {}
        self._failed: dict[bytes, Asked] = {}
        self._elsewhere: Asked | None = None

    def __bool__(self) -> bool:
        return bool(self._failed)

    def answered(self, asked: Asked) -> None:
        """Notes a question that was answered well: nothing is suspected any more."""
        self._clear()
        _put(self._good, asked)

    def answered_elsewhere(self, asked: Asked) -> None:
        """Notes a question that another server for the same names answered well."""
        if self._failed and domain_of(asked.name) not in self._failed:
            self._elsewhere = asked

    def failed(self, asked: Asked) -> None:
        """Notes a question that was answered late, with an error or not at all."""
        _put(self._failed, asked)

    def passed(self, asked: Asked) -> None:
        """Notes that a probe with this question was answered well: of other domains that says something only if another server, too,
        answers it, and not what failed here."""
        if domain_of(asked.name) in self._failed or asked == self._elsewhere:
            self._clear()

    @property
    def is_broad(self) -> bool:
        """Whether questions about several domains failed."""
        return len(self._failed) >= DOMAINS

    def question(self) -> Asked | None:
        """Returns what to ask the server: if several domains failed, what another server has answered meanwhile, or else one of the questions
        that failed; else one that it answered before, about another domain; None without one."""
        if self.is_broad:
            return self._elsewhere or next(reversed(self._failed.values()))
        return next((asked for domain, asked in reversed(self._good.items()) if domain not in self._failed), None)

    def _clear(self) -> None:
        self._failed.clear()
        self._elsewhere = None


def domain_of(name: bytes) -> bytes:
    """Returns the last two labels of a name in wire form."""
    return (*suffixes(name),)[-3:][0]


def _put(questions: dict[bytes, Asked], asked: Asked) -> None:
    domain = domain_of(asked.name)
    questions.pop(domain, None)
    questions[domain] = asked
    if len(questions) > DOMAINS:
        del questions[next(iter(questions))]
