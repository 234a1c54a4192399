"""Which releases of etcd do what they should (CHANGELOG-3.4.md, CHANGELOG-3.5.md and CHANGELOG-3.6.md of etcd-io/etcd). Pure."""

import re
from typing import Final, TypeAlias

Version: TypeAlias = tuple[int, int, int]

_PROGRESS_IN_STEP: Final = {(3, 4): 31, (3, 5): 13}
"""The first release of a series that says of a watch that it has come so far only when it has (etcd-io/etcd#15220)."""
_FOR_USE: Final = {(3, 5): 28, (3, 6): 9}
"""The first release of a series without a known loss of events, revisions that go back, or reads of what is past."""
_LATEST_KNOWN: Final = max(_FOR_USE)


def parse_version(text: str) -> Version:
    """`3.5.16`; what follows the numbers does not count. What is no version is 0.0.0."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def tells_progress_in_step(version: Version) -> bool:
    """A watch may be believed how far it has come."""
    series, patch = version[:2], version[2]
    return series > max(_PROGRESS_IN_STEP) or patch >= _PROGRESS_IN_STEP.get(series, patch + 1)


def is_for_use(version: Version) -> bool:
    """No failure that matters here is known of it; older series are for tests."""
    series, patch = version[:2], version[2]
    return series > _LATEST_KNOWN or patch >= _FOR_USE.get(series, patch + 1)
