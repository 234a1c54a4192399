"""What a person types first, or mistypes, gets one line that says what to do."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.netns.commands.conftest import NODEAGENT, Node


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("run",), "nodeagent: no source: give --kubeconfig FILE or --manifests DIRECTORY", id="bare run"),
        pytest.param(
            ("run", "--cleanup"), "Error: use the command nodeagent cleanup instead of --cleanup", id="cleanup flag"
        ),
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
def test_a_mistake_is_one_line_and_exit_code_2(node: Node, arguments: tuple[str, ...], words: str) -> None:
    done = node.nodeagent(*arguments, environment={"KUBERNETES_SERVICE_HOST": ""})
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(words)
    assert node.shell("nft list tables") == ""


def test_a_missing_interface_is_named(node: Node) -> None:
    done = node.nodeagent("trace", "10.244.1.5", "10.96.0.10:80", "--from", "eth9")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "nodeagent: there is no interface eth9 here: see ip link\n"


def test_a_missing_directory_is_reported_before_a_missing_agent(node: Node, tmp_path: Path) -> None:
    done = node.nodeagent("plan", "--manifests", str(tmp_path / "tpyo"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"nodeagent: manifest directory {tmp_path / 'tpyo'}: No such file or directory\n"


def test_a_name_of_nothing_is_seen_as_one(node: Node) -> None:
    done = node.nodeagent("dns", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nodeagent: '': a label has 1 to 63 bytes\n"


WITHOUT_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", *NODEAGENT)
"""What a directory of mode 0 is closed to."""


@pytest.mark.parametrize("command", ["explain", "log-level"])
def test_a_forbidden_socket_is_distinguished_from_a_missing_agent(node: Node, tmp_path: Path, command: str) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0)
    place = closed / "agent.sock"
    done = node.run(*WITHOUT_OVERRIDE, command, "--socket", str(place))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(
        f"nodeagent: the agent's socket {place} is not open to you: run the command as root, or as a member"
    )
    assert len(done.stderr.splitlines()) == 1
    assert "start it" not in done.stderr


def test_a_data_directory_of_somebody_else_is_named(node: Node, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0)
    done = node.run(*WITHOUT_OVERRIDE, "apiserver", "--listen=127.0.0.1:0", f"--data-dir={closed}/data")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1].startswith(f"nodeagent: {closed}/data")
    assert "Permission denied: run it as the owner, or name another --data-dir" in done.stderr
    assert "Errno" not in done.stderr


def test_kubeconfig_out_makes_no_directories(node: Node, tmp_path: Path) -> None:
    place = tmp_path / "tpyo" / "kubeconfig"
    done = node.nodeagent("apiserver", "--listen=127.0.0.1:0", f"--kubeconfig-out={place}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"nodeagent: --kubeconfig-out {place}: there is no directory {place.parent}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_named(node: Node, tmp_path: Path) -> None:
    script = (
        "import socket, subprocess, sys; taken = socket.create_server(('127.0.0.1', 0)); "
        "place = '127.0.0.1:%d' % taken.getsockname()[1]; print(place, flush=True); "
        "sys.exit(subprocess.run([*sys.argv[1:], place]).returncode)"
    )
    done = node.run(sys.executable, "-c", script, *NODEAGENT, "apiserver", f"--data-dir={tmp_path}/data", "--listen")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"nodeagent: --listen {done.stdout.strip()}: Address already in use"


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
        assert words == [f"info proxy.dataplane.interface: interface nodeagent0 is an empty bridge, {why}"]
