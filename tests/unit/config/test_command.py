"""`nodeagent config`: what it prints and how it exits."""

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from nodeagent.cli.config import config_command
from nodeagent.cli.config_options import config_options
from nodeagent.config.config_text import render_yaml
from nodeagent.config.flags import FLAGS, IGNORED_FLAGS
from nodeagent.config.keys import KEYS
from nodeagent.config.load import LoadedConfig, load_config

HEAD = "apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\n"
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: node
clusters: [{{name: c, cluster: {{server: 'https://198.18.77.10:6443', certificate-authority: '{authority}'}}}}]
contexts: [{{name: node, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""
BODY = HEAD + "traffic:\n  clusterCIDRs: [10.0.0.0/8, 'fd00::/8']\nreporting:\n  healthzBindAddress: ''\n"


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(config_command, arguments, env=environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "svc.yaml"
    path.write_text(BODY)
    return path


def test_show_prints_each_value_with_its_origin(file: Path) -> None:
    result = run(
        "show", "--config", str(file), "--node-name=worker-1", environment={"NODEAGENT_LOGGING_FORMAT": "json"}
    )
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[:3] == ["apiVersion: nodeagent.io/v1alpha1", "kind: NodeAgentConfiguration", "source:"]
    assert "name: worker-1 # flag --node-name" in lines
    assert f"clusterCIDRs: [10.0.0.0/8, 'fd00::/8'] # file {file}:4" in lines
    assert f"healthzBindAddress: '' # file {file}:6" in lines
    assert "format: json # env NODEAGENT_LOGGING_FORMAT" in lines
    assert "masqueradeAll: false # default" in lines


def test_show_lists_what_is_ignored_and_warned_of() -> None:
    result = run("show", "--node-name=n", "--proxy-mode=ipvs", "--pod-bridge-interface=cni0")
    assert result.stdout.splitlines()[-2:] == [
        "# flag --proxy-mode: --proxy-mode is ignored: there is one mode, nftables maps",
        "# warning: flag --pod-bridge-interface: traffic.bridgeInterface: has no effect with traffic.detectLocalMode ClusterCIDR",
    ]


def test_the_output_of_show_makes_the_same_configuration(file: Path, tmp_path: Path) -> None:
    loaded = load_config(file=file, environment={}, flags={"--min-sync-period": "250ms"}, hostname="h")
    again = tmp_path / "again.yaml"
    again.write_text(render_yaml(loaded))
    assert load_config(file=again, environment={}, flags={}, hostname="other").config == loaded.config


def test_show_as_json_has_values_and_origins(file: Path) -> None:
    result = run("show", "--config", str(file), "--node-name=n", "--proxy-mode=ipvs", "-o", "json")
    shown = json.loads(result.stdout)
    assert shown["config"]["traffic"]["clusterCIDRs"] == ["10.0.0.0/8", "fd00::/8"]
    assert shown["config"]["conntrack"]["tcpEstablishedTimeout"] == "24h0m0s"
    assert shown["origins"].keys() == KEYS.keys()
    assert shown["origins"]["traffic.clusterCIDRs"] == f"file {file}:4"
    assert shown["ignored"] == [
        {"key": "--proxy-mode", "reason": "there is one mode, nftables maps", "place": "flag --proxy-mode"}
    ]
    assert shown["warnings"] == []


def test_check_is_content(file: Path, tmp_path: Path) -> None:
    result = run("check", "--config", str(file), "--node-name=n", f"--manifests={tmp_path}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"ok: 4 of {len(KEYS)} options set, the others at their default",
        f"ok: manifest directory {tmp_path}",
    ]


def test_check_says_when_nothing_tells_pods(tmp_path: Path) -> None:
    result = run("check", "--node-name=n", f"--manifests={tmp_path}")
    assert result.exit_code == 0
    assert result.stdout.startswith("warning: traffic.clusterCIDRs is empty: no source counts as a pod, so ")
    for option in ("--cluster-cidr=10.244.0.0/16", "--detect-local-mode=NodeCIDR"):
        assert "warning" not in run("check", "--node-name=n", f"--manifests={tmp_path}", option).stdout


def test_check_says_when_there_is_no_source() -> None:
    result = run("check", "--node-name=n", "--cluster-cidr=10.244.0.0/16")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == (
        "warning: no source: outside a pod, source.kubeconfig (--kubeconfig) or source.manifests (--manifests) must name one"
    )


@pytest.mark.parametrize(
    ("option", "key", "reason"),
    [
        pytest.param("--kubeconfig=/no/such", "source.kubeconfig", "/no/such: No such file or directory", id="gone"),
        pytest.param("--kubeconfig=/etc", "source.kubeconfig", "/etc: Is a directory", id="directory"),
        pytest.param("--manifests=/no/such", "source.manifests", "/no/such: No such file or directory", id="manifests"),
        pytest.param("--manifests=/etc/hostname", "source.manifests", "/etc/hostname: is not a directory", id="file"),
    ],
)
def test_check_refuses_files_that_are_not_there(option: str, key: str, reason: str) -> None:
    result = run("check", "--node-name=n", option)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"flag {option.partition('=')[0]}: {key}: {reason}\n"
    assert run("show", "--node-name=n", option).exit_code == 0, "show prints whatever can be read"


def test_check_looks_into_the_files_that_a_kubeconfig_names(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(authority="gone.crt"))
    file = tmp_path / "svc.yaml"
    file.write_text(f"{HEAD}source:\n  kubeconfig: {kubeconfig}\n")
    result = run("check", "--node-name=n", "--config", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}:4: source.kubeconfig: {kubeconfig}: ")
    assert f"{tmp_path}/gone.crt: No such file or directory" in result.stderr


def test_check_warns_of_a_service_range_around_the_api_server(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(authority=""))
    result = run("check", "--node-name=n", f"--kubeconfig={kubeconfig}", "--service-cidr=198.18.77.0/24")
    assert result.exit_code == 0
    line = "traffic.serviceCIDRs: 198.18.77.0/24 overlaps with 198.18.77.10/32 (the API server), which it would cut off"
    assert f"warning: {line}" in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        pytest.param({"HTTPS_PROXY": "http://u:secret@proxy:3128"}, "http://u:***@proxy:3128", id="a proxy"),
        pytest.param({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "192.0.2.0/24"}, None, id="excepted"),
        pytest.param({}, None, id="none"),
    ],
)
def test_a_proxy_of_the_environment_is_shown(environment: dict[str, str], shown: str | None) -> None:
    flags = ("--node-name=n", "--master=https://192.0.2.1:6443")
    reported = f"the API server https://192.0.2.1:6443 is reached through the proxy {shown}"
    clean = {"HTTPS_PROXY": "", "https_proxy": "", "NO_PROXY": "", "no_proxy": ""}
    assert (f"# {reported}\n" in run("show", *flags, environment=clean | environment).stdout) is (shown is not None)
    assert (f"{reported}\n" in run("check", *flags, environment=clean | environment).stdout) is (shown is not None)
    document = json.loads(run("show", *flags, "-o", "json", environment=clean | environment).stdout)
    assert document["remarks"] == ([reported] if shown else [])


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_wrong_configuration_ends_with_code_2_and_one_line_per_problem(tmp_path: Path, command: str) -> None:
    file = tmp_path / "svc.yaml"
    file.write_text(HEAD + "colour: red\nlogging:\n  level: loud\n")
    result = run(command, "--config", str(file), "--min-sync-period=3", "--node-name=n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{file}:3: colour: unknown key",
        f"{file}:5: logging.level: must be 'debug', 'info', 'warning' or 'error', not 'loud'",
        'flag --min-sync-period: dataplane.minSyncPeriod: missing unit in duration "3"',
    ]


def test_a_file_that_is_not_there_is_a_line_and_no_traceback(tmp_path: Path) -> None:
    result = run("check", "--config", str(tmp_path / "gone"), "--node-name=n")
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path}/gone: cannot be read: No such file or directory\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--masquerade-all"], {"masqueradeAll": True}, id="bare switch"),
        pytest.param(["--masquerade-all=false"], {"masqueradeAll": False}, id="switch with value"),
        pytest.param(["--masquerade-all", "--cluster-cidr", "10.0.0.0/8"], {"masqueradeAll": True}, id="switch, flag"),
        pytest.param(
            ["--cluster-cidr=10.0.0.0/8,fd00::/8"], {"clusterCIDRs": ["10.0.0.0/8", "fd00::/8"]}, id="list with commas"
        ),
        pytest.param(
            ["--cluster-cidr=10.0.0.0/8", "--cluster-cidr=fd00::/8"],
            {"clusterCIDRs": ["10.0.0.0/8", "fd00::/8"]},
            id="list by repetition",
        ),
        pytest.param(["--nodeport-addresses="], {"nodePortAddresses": ["primary"]}, id="empty list"),
    ],
)
def test_how_flags_are_written(arguments: list[str], expected: dict[str, object]) -> None:
    result = run("show", "--node-name=n", *arguments)
    assert result.exit_code == 0
    assert expected.items() <= yaml.safe_load(result.stdout)["traffic"].items()


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        (["-v"], "debug"),
        (["--verbose"], "debug"),
        (["-v", "2"], "info"),
        (["-v4"], "debug"),
        (["-v=2"], "info"),
        (["--v=5"], "debug"),
        (["--log-level=warning"], "warning"),
        ([], "info"),
    ],
    ids=" ".join,
)
def test_verbosity(arguments: list[str], level: str) -> None:
    result = run("show", "--node-name=n", *arguments)
    assert yaml.safe_load(result.stdout)["logging"]["level"] == level


def test_every_flag_can_be_given_on_the_command_line() -> None:
    result = run("show", "--help")
    assert all(f"{flag.name}" in result.stdout for flag in FLAGS.values())
    assert run("check", "--node-name=n", *(f"{name}=" for name in IGNORED_FLAGS)).exit_code == 0


def test_a_command_keeps_its_own_options_and_gets_the_configuration() -> None:
    @click.command()
    @click.option("--dry-run", is_flag=True)
    @config_options
    def start(dry_run: bool, loaded: LoadedConfig) -> None:
        click.echo(f"{dry_run} {loaded.config.node.name}")

    result = CliRunner().invoke(start, ["--dry-run", "--hostname-override", "N1"])
    assert result.stdout == "True n1\n"
