"""The Vagrantfile is valid with either provider, and says in one line what is missing; shell scripts are clean."""

import json
import os
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "vagrant"
MORE_OF_ALL = {
    "NODEAGENT_CONTROL_NODES": "3",
    "NODEAGENT_WORKERS": "4",
    "NODEAGENT_MEMORY": "1024",
    "NODEAGENT_CPUS": "2",
}


def needs(program: str) -> pytest.MarkDecorator:
    missing = shutil.which(program) is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(missing, reason=f"make test brings {program}")


def settings_of(state: Path) -> dict[str, str]:
    """An environment without plugins, the user's files, a package to find, or a look at the network."""
    return {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "HOME": str(state),
        "VAGRANT_HOME": str(state / "home"),
        "VAGRANT_DOTFILE_PATH": str(state / "project"),
        "VAGRANT_CWD": str(PROJECT),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
        "VAGRANT_NO_PLUGINS": "1",
        "NODEAGENT_DEB": __file__,
    }


def vagrant(state: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command of Vagrant's in the project."""
    env = settings_of(state) | settings
    return subprocess.run(["vagrant", *arguments], env=env, capture_output=True, text=True, check=False)


def read_by_ruby(state: Path, command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The Vagrantfile, which looks at its settings before it asks for Vagrant: that alone takes a second."""
    env = settings_of(state) | settings
    return subprocess.run(
        ["ruby", "Vagrantfile", command], cwd=PROJECT, env=env, capture_output=True, text=True, check=False
    )


@needs("vagrant")
def test_a_mistake_would_be_noticed(tmp_path: Path) -> None:
    shutil.copytree(PROJECT, tmp_path / "copy", ignore=shutil.ignore_patterns(".vagrant"))
    file = tmp_path / "copy" / "Vagrantfile"
    file.write_text(file.read_text().replace("hostname = name", "hostname = 'no host!'"))
    result = vagrant(tmp_path, "validate", "--ignore-provider", VAGRANT_CWD=str(file.parent))
    assert result.returncode == 1
    assert "hostname" in result.stderr


@needs("vagrant")
def test_the_vagrantfile_is_valid_and_credentials_are_for_their_owner_only(tmp_path: Path) -> None:
    """The authority is one that TLS accepts, and only `control` is given its key. Credentials that are there stay, also when there
    is more of everything. (In one test, for each start of Vagrant takes a second.)"""
    by_default = vagrant(tmp_path, "validate", "--ignore-provider")
    assert by_default.returncode == 0, by_default.stdout + by_default.stderr
    credentials = tmp_path / "project" / "nodeagent"
    files = [path for path in credentials.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert [path.name for path in (credentials / "worker").iterdir()] == ["kubeconfig"]
    ssl.create_default_context(cafile=str(credentials / "control" / "ca.crt"))
    users = {path: json.loads(path.read_text())["users"][0]["name"] for path in files if "kubeconfig" in path.name}
    assert {path.relative_to(credentials).as_posix(): user for path, user in users.items()} == {
        "admin.kubeconfig": "admin",
        "control/kubeconfig": "agent",
        "worker/kubeconfig": "agent",
    }
    kept = {path: path.read_bytes() for path in files}
    more = vagrant(tmp_path, "validate", "--ignore-provider", **MORE_OF_ALL)
    assert more.returncode == 0, more.stdout + more.stderr
    assert {path: path.read_bytes() for path in files} == kept


@needs("vagrant")
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        pytest.param(
            {"NODEAGENT_CONTROL_NODES": "2"},
            "nodeagent: NODEAGENT_CONTROL_NODES is 2, not 1 or 3",
            id="a control plane that one failure ends",
        ),
        pytest.param({"NODEAGENT_WORKERS": "0"}, "nodeagent: NODEAGENT_WORKERS is 0, not 1 to 9", id="no worker"),
        pytest.param(
            {"NODEAGENT_KUBECONFIG": "/nonexistent"},
            "nodeagent: NODEAGENT_KUBECONFIG names /nonexistent, which is not there",
            id="no kubeconfig",
        ),
    ],
)
def test_a_missing_tool_is_one_line(tmp_path: Path, settings: dict[str, str], line: str) -> None:
    result = read_by_ruby(tmp_path, "up", **settings)
    assert (result.returncode, result.stderr.strip()) == (1, line)


@needs("vagrant")
def test_vagrant_prints_the_same_line(tmp_path: Path) -> None:
    result = vagrant(tmp_path, "up", NODEAGENT_DEB="/nonexistent.deb")
    line = "nodeagent: there is no package /nonexistent.deb: run `make deb` first"
    assert (result.returncode, result.stderr.strip()) == (1, line)


@needs("vagrant")
def test_a_kubeconfig_for_this_computer_only_is_refused(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "k3s.yaml"
    kubeconfig.write_text("clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n")
    result = read_by_ruby(tmp_path, "up", NODEAGENT_KUBECONFIG=str(kubeconfig))
    assert result.returncode == 1
    assert "names a server on loopback" in result.stderr


@needs("shellcheck")
def test_shell_scripts_are_clean() -> None:
    """Every one that git knows; those without an ending by their first line."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    scripts = [path for path in files if path.suffix == ".sh" or begins_as_script(path)]
    assert len(scripts) > 10
    result = subprocess.run(["shellcheck", *map(str, scripts)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def begins_as_script(path: Path) -> bool:
    if path.suffix or not path.is_file():
        return False
    first = path.read_bytes()[:64].split(b"\n")[0]
    return first.startswith(b"#!") and first.endswith((b"sh", b"sh -e"))
