"""What forges run for others: files that they understand, which call what is there, and what `make lint` checks."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GITLAB = ROOT / ".gitlab-ci.yml"
SCHEMAS = {
    **dict.fromkeys(GITHUB, "vendor.github-workflows"),
    GITLAB: "vendor.gitlab-ci",
    ROOT / ".github" / "dependabot.yml": "vendor.dependabot",
}
MAKEFILE = (ROOT / "Makefile").read_text()
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def check(path: Path, schema: str) -> subprocess.CompletedProcess[str]:
    """With schemas that check-jsonschema brings, so that no network is asked."""
    transform = ("--data-transform", "gitlab-ci") if "gitlab" in schema else ()
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *transform, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_the_forge_understands_it(path: Path) -> None:
    result = check(path, SCHEMAS[path])
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_mistake_would_be_found(tmp_path: Path) -> None:
    wrong = tmp_path / "ci.yml"
    wrong.write_text(GITHUB[0].read_text().replace("runs-on:", "run-on:", 1))
    assert check(wrong, "vendor.github-workflows").returncode == 1


@pytest.mark.parametrize("path", [*GITHUB, GITLAB], ids=lambda path: path.name)
def test_every_target_exists(path: Path) -> None:
    text = path.read_text()
    matrix = re.search(r"(?:target|TARGET): \[([^\]]+)\]", text)
    named = set(re.findall(r"(?:: |- |\[)make ([a-z][\w-]*)", text)) | set(
        re.split(r", *", matrix[1]) if matrix else ()
    )
    assert named
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", MAKEFILE, re.MULTILINE))
    assert named <= targets


def test_both_run_the_same() -> None:
    """What CI runs, each Python, two Debians, and the same long targets."""
    for text in ("\n".join(path.read_text() for path in GITHUB), GITLAB.read_text()):
        assert ".ci/run" in text
        assert {"audit", "lock", "site", "unit"} <= set(re.findall(r"\bmake ([a-z-]+)", text))
        assert yaml.safe_load(re.search(r"(?i)\bpython: (\[.*\])", text)[1]) == PYTHONS  # type: ignore[index]
        assert yaml.safe_load(re.search(r"(?i)\bdebian: (\[.*\])", text)[1]) == ["12", "13"]  # type: ignore[index]
    long = [re.search(r"(?i)\btarget: (\[.*\])", path.read_text())[1] for path in (GITHUB[1], GITLAB)]  # type: ignore[index]
    assert long[0] == long[1]


def test_jobs_of_github_have_few_rights_and_an_end() -> None:
    for path in GITHUB:
        workflow = loaded(path)
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert job["timeout-minutes"] <= 360, name
            for step in job["steps"]:
                assert "uses" not in step or re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]), step


def test_pre_commit_checks_the_same_as_lint() -> None:
    recipe = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0].splitlines()[1:]
    hooks = [hook for repo in loaded(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe]
