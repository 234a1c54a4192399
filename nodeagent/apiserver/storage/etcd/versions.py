"""The releases of etcd that work correctly (CHANGELOG-3.4.md, CHANGELOG-3.5.md and CHANGELOG-3.6.md of etcd-io/etcd). Pure."""

import re
from typing import Final, TypeAlias

Version: TypeAlias = tuple[int, int, int]

_PROGRESS_IN_STEP: Final = {(3, 4): 31, (3, 5): 13}
"""The first release of a series whose watches do not report progress too early (etcd-io/etcd#15220)."""
_FOR_USE: Final = {(3, 5): 28, (3, 6): 9}
"""The first release of a series without a known loss of events, revisions that go back, or reads of outdated data."""
_LATEST_KNOWN: Final = max(_FOR_USE)


def parse_version(text: str) -> Version:
    """Parses `3.5.16`; ignores what follows the numbers. Returns 0.0.0 for anything else."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def reports_progress_correctly(version: Version) -> bool:
    """Returns whether the progress that a watch reports is correct."""
    series, patch = version[:2], version[2]
    return series > max(_PROGRESS_IN_STEP) or patch >= _PROGRESS_IN_STEP.get(series, patch + 1)


def is_recommended(version: Version) -> bool:
    """Returns whether no relevant defect of the release is known; older series are for tests."""
    series, patch = version[:2], version[2]
    return series > _LATEST_KNOWN or patch >= _FOR_USE.get(series, patch + 1)
