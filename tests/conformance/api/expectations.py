"""What is expected of each spec: that it passes, or why it is not for this server. Pure but for reading `specs.yaml`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

DATA: Final = Path(__file__).with_name("specs.yaml")
SPECIAL_INTEREST_GROUPS: Final = ("api-machinery", "architecture", "auth", "instrumentation", "network")
"""Every spec of these has to be in the data."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some specs are not for this server; `patterns` are matched with the beginning of a spec's name."""

    why: str
    patterns: tuple[str, ...]

    def covers(self, spec: str) -> bool:
        """Whether it is the reason for this spec."""
        return any(re.match(pattern, spec) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Expectations:
    """All of the data. Of several reasons the first that covers a spec counts."""

    passing: tuple[str, ...]
    reasons: tuple[Reason, ...]

    def reason(self, spec: str) -> Reason | None:
        """None for a spec that has to pass, or that nothing is known of."""
        if spec in self.passing:
            return None
        return next((reason for reason in self.reasons if reason.covers(spec)), None)

    def unknown(self, specs: list[str]) -> list[str]:
        """Specs of our groups that nothing is known of."""
        groups = tuple(f"[sig-{name}]" for name in SPECIAL_INTEREST_GROUPS)
        return [
            spec for spec in specs if spec.startswith(groups) and spec not in self.passing and self.reason(spec) is None
        ]

    def missing(self, specs: list[str]) -> list[str]:
        """What has to pass and is not among the specs."""
        return sorted(set(self.passing) - set(specs))


def read_expectations(path: Path = DATA) -> Expectations:
    """The data of a file."""
    data = yaml.safe_load(path.read_text())
    reasons = tuple(Reason(entry["why"], tuple(entry["specs"])) for entry in data["not for us"])
    return Expectations(tuple(data["passes"]), reasons)
