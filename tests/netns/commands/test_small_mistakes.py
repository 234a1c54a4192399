"""What a person types first, or mistypes, is told in one line that says what to do."""

import shutil
from pathlib import Path

import pytest

from tests.netns.commands.conftest import Node


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("run",), "nodeagent: no source: give --kubeconfig FILE or --manifests DIRECTORY", id="bare run"),
        pytest.param(("run", "--cleanup"), "Error: --cleanup is a command here: nodeagent cleanup", id="cleanup flag"),
        pytest.param(
            ("apiserver", "--history=0"),
            "Error: Invalid value for '--history': 0 is not in the range 1<=x<=86400.",
            id="no history",
        ),
        pytest.param(
            ("apiserver", "--store-limit=-1"),
            "Error: Invalid value for '--store-limit': -1 is not in the range 1<=x<=1048576.",
            id="store below nothing",
        ),
        pytest.param(
            ("apiserver", "--log-level=loud"),
            "Error: Invalid value for '--log-level': 'loud' is not one of",
            id="level",
        ),
    ],
)
def test_it_is_a_line_and_code_2(node: Node, arguments: tuple[str, ...], words: str) -> None:
    done = node.nodeagent(*arguments, environment={"KUBERNETES_SERVICE_HOST": ""})
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(words)
    assert node.shell("nft list tables") == ""


def test_kubeconfig_out_makes_no_directories(node: Node, tmp_path: Path) -> None:
    place = tmp_path / "tpyo" / "kubeconfig"
    done = node.nodeagent("apiserver", "--listen=127.0.0.1:0", f"--kubeconfig-out={place}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"nodeagent: --kubeconfig-out {place}: there is no directory {place.parent}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_corrupt_authority_is_named(node: Node, tmp_path: Path) -> None:
    node.shell(
        f"cd {tmp_path}; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=c "
        "-keyout ca.key -out whole.crt 2> /dev/null"
    )
    directory = tmp_path / "data" / "pki"
    directory.mkdir(parents=True)
    shutil.copy(tmp_path / "ca.key", directory / "ca.key")
    (directory / "ca.crt").write_bytes((tmp_path / "whole.crt").read_bytes()[:200])
    done = node.nodeagent("apiserver", "--listen=127.0.0.1:0", f"--data-dir={tmp_path}/data")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"nodeagent: {directory}/ca.crt: not a certificate that can be read: "
    )


def test_that_the_interface_is_a_bridge_is_information(node: Node) -> None:
    """On a kernel without dummies; elsewhere there is nothing to say."""
    done = node.run("ip", "link", "add", "probe", "type", "dummy")
    cidr = "--cluster-cidr=10.244.0.0/16"
    log = node.nodeagent("run", "--once", "--manifests=docs/examples", "--node-name=node-a", cidr).stderr
    lines = [line for line in log.splitlines() if "nodeagent0" in line]
    if done.returncode == 0:
        assert lines == []
    else:
        why = "because this kernel has no dummy interfaces; it carries ClusterIPs as well"
        words = [line.split(" ", 1)[1] for line in lines]
        assert words == [f"info dataplane.interface: interface nodeagent0 is an empty bridge, {why}"]
