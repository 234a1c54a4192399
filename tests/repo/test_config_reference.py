"""docs/config.md says what the types say."""

from pathlib import Path

from nodeagent.config.files import read_text
from nodeagent.config.flags import FLAGS, IGNORED_FLAGS
from nodeagent.config.keys import KEYS
from nodeagent.config.kube_proxy_fields import KUBE_PROXY_FIELDS
from tests.repo.config_reference import EXAMPLE, render_reference

DOCUMENT = Path(__file__).parents[2] / "docs" / "config.md"


def test_the_reference_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == render_reference(), (
        ".venv/bin/python -m tests.repo.config_reference > docs/config.md"
    )


def test_everything_is_in_the_reference() -> None:
    text = render_reference()
    for key in KEYS.values():
        assert f"| `{key.name}` |" in text
        assert f"`{key.environment_variable}`" in text
    for name in (*FLAGS, *IGNORED_FLAGS, *KUBE_PROXY_FIELDS):
        assert f"`{name}`" in text


def test_no_cell_of_a_table_is_torn() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("|")]
    assert all(row.count("|") in {3, 6} for row in rows)


def test_the_example_is_a_configuration() -> None:
    layer = read_text(EXAMPLE, "example")
    assert not layer.problems
    assert layer.settings
