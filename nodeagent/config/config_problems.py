"""What can be wrong with a configuration, and where a value was set."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Origin(NamedTuple):
    """Where a value was set: a file and its 1-based line, or (line 0) a flag, an environment variable, ``default``."""

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source

    @property
    def described(self) -> str:
        """The origin as `config show` prints it: ``file svc.yaml:12``, ``flag --x``, ``env X``, ``default``."""
        return f"file {self}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One error. `key` is spelled as at its origin; empty if the error is about the whole file."""

    origin: Origin
    key: str
    reason: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.origin), self.key, self.reason) if part)


@dataclass(frozen=True, slots=True)
class IgnoredField:
    """A setting of kube-proxy that has no effect here and differs from its default."""

    key: str
    reason: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.origin}: {self.key} is ignored: {self.reason}"


class ConfigError(Exception):
    """The configuration cannot be used. `problems` lists all errors, at least one, in order."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
