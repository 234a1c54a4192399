"""A file of the package has a name that few others have."""

from collections import Counter

from tests.harness.source_tree import modules

REPEATED = {
    "__init__.py": "Python's name for what a package says of itself",
    "__main__.py": "Python's name for what a package runs",
}
"""File name → why more than two packages have it."""
MOST_OF_A_NAME = 2


def test_a_file_has_a_name_of_its_own() -> None:
    """Who reads a name in a log, a traceback or an editor's list knows the file by it."""
    names = Counter(path.name for path in modules())
    assert {name: count for name, count in names.items() if count > MOST_OF_A_NAME and name not in REPEATED} == {}
