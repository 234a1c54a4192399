"""Layers: flags over environment over file over defaults, and where each value came from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.config.config_problems import ConfigError
from nodeagent.config.flags import FLAGS, IGNORED_FLAGS
from nodeagent.config.keys import KEYS, plain_option
from nodeagent.config.load import LoadedConfig, load_config

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., list[str]]

FILE = "dataplane:\n  minSyncPeriod: 1s\n"
VARIABLE = {"NODEAGENT_DATAPLANE_MIN_SYNC_PERIOD": "2s"}
FLAG = {"--min-sync-period": "3s"}


@pytest.mark.parametrize(
    ("layers", "seconds", "origin"),
    [
        pytest.param({}, 1, "file svc.yaml:4", id="file over default"),
        pytest.param(
            {"environment": VARIABLE}, 2, "env NODEAGENT_DATAPLANE_MIN_SYNC_PERIOD", id="environment over file"
        ),
        pytest.param({"flags": FLAG}, 3, "flag --min-sync-period", id="flag over file"),
        pytest.param({"environment": VARIABLE, "flags": FLAG}, 3, "flag --min-sync-period", id="flag over environment"),
    ],
)
def test_precedence(own: Load, tmp_path: Path, layers: dict[str, object], seconds: int, origin: str) -> None:
    loaded = own(FILE, **layers)
    assert loaded.config.dataplane.min_sync_period.seconds == seconds
    assert loaded.origins["dataplane.minSyncPeriod"].replace(f"{tmp_path}/", "") == origin
    assert loaded.origins["dataplane.syncPeriod"] == "default"


def test_a_layer_replaces_one_value_and_not_its_group(own: Load) -> None:
    loaded = own("conntrack:\n  min: 7\n  maxPerCore: 8\n", flags={"--conntrack-min": "9"})
    assert (loaded.config.conntrack.min, loaded.config.conntrack.max_per_core) == (9, 8)


def test_lists_are_replaced_and_not_joined(own: Load) -> None:
    loaded = own("traffic:\n  clusterCIDRs: [10.0.0.0/8]\n", flags={"--cluster-cidr": "11.0.0.0/8,fd00::/8"})
    assert loaded.config.traffic.cluster_cidrs == ("11.0.0.0/8", "fd00::/8")


def test_a_later_layer_can_unset_what_a_file_sets(own: Load) -> None:
    loaded = own(
        "source:\n  kubeconfig: /k\nreporting:\n  healthzBindAddress: 127.0.0.1:1\n",
        flags={"--kubeconfig": "", "--healthz-bind-address": ""},
    )
    assert loaded.config.source.kubeconfig is None
    assert loaded.config.reporting.healthz_bind_address is None


def test_every_option_has_an_origin(load: Load) -> None:
    assert load().origins == dict.fromkeys(KEYS, "default")


def test_the_host_name_is_the_default_of_the_node_name(load: Load) -> None:
    assert load(hostname=" Host-A\n").config.node.name == "host-a"
    assert load(hostname="", flags={"--node-name": "Worker-1"}).config.node.name == "worker-1"


@pytest.mark.parametrize("hostname", ["", " ", "\n"])
def test_a_host_without_a_name_is_an_error(load: Load, refused: Refuse, hostname: str) -> None:
    assert refused(load, hostname=hostname) == ["default: node.name: this host has no name; set one"]


def test_a_host_name_that_no_node_can_have_is_an_error(load: Load, refused: Refuse) -> None:
    lines = refused(load, hostname="a b")
    assert lines == [
        "default: node.name: 'a b' is not a node name (at most 253 characters, without blanks and '/', ',', '=')"
    ]


def test_a_wrong_value_is_an_error_also_where_another_layer_overrides_it(own: Load, refused: Refuse) -> None:
    lines = refused(
        own,
        "dataplane:\n  minSyncPeriod: 1d\n",
        environment={"NODEAGENT_DATAPLANE_MIN_SYNC_PERIOD": "x", "NODEAGENT_DATAPLANE_COUNTERS": "maybe"},
        flags=FLAG,
    )
    assert lines == [
        'svc.yaml:4: dataplane.minSyncPeriod: unknown unit "d" in duration "1d"',
        "env NODEAGENT_DATAPLANE_COUNTERS: dataplane.counters: must be true or false, not 'maybe'",
        'env NODEAGENT_DATAPLANE_MIN_SYNC_PERIOD: dataplane.minSyncPeriod: invalid duration "x"',
    ]


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "svc.yaml"
    file.write_text("apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\nlogging: {level: error}\n")
    loaded = load_config(file=None, environment={"NODEAGENT_CONFIG": str(file)}, flags={}, hostname="h")
    assert loaded.config.logging.level.value == "error"
    with pytest.raises(ConfigError, match="No such file"):
        load_config(file=tmp_path / "x", environment={"NODEAGENT_CONFIG": str(file)}, flags={}, hostname="h")


def test_a_variable_that_names_no_option_is_a_warning(load: Load) -> None:
    loaded = load(environment={"NODEAGENT_TRAFFIC_MASQERADE_ALL": "true", "PATH": "/bin"})
    assert loaded.warnings == ("env NODEAGENT_TRAFFIC_MASQERADE_ALL names no option and has no effect",)


def test_where_labs_are_is_not_worth_a_word(load: Load) -> None:
    assert load(environment={"NODEAGENT_LAB_DIR": "/tmp/labs"}).warnings == ()


def test_the_variables_of_a_service_called_nodeagent_are_not_worth_a_word(load: Load) -> None:
    announced = {
        "NODEAGENT_SERVICE_HOST": "10.96.0.7",
        "NODEAGENT_SERVICE_PORT": "10249",
        "NODEAGENT_SERVICE_PORT_METRICS": "10249",
        "NODEAGENT_PORT": "tcp://10.96.0.7:10249",
        "NODEAGENT_PORT_10249_TCP_ADDR": "10.96.0.7",
    }
    assert load(environment=announced).warnings == ()


@pytest.mark.parametrize("path", list(KEYS))
def test_every_option_can_be_set_by_its_variable(load: Load, path: str) -> None:
    key = KEYS[path]
    texts = {"node.name": "n", "source.master": "https://h", "source.context": "", "traffic.interfaceNamePrefix": ""}
    default = plain_option(key, key.default)
    text = ",".join(map(str, default)) if isinstance(default, list) else "" if default is None else str(default)
    loaded = load(environment={key.environment_variable: texts.get(path, text)})
    assert loaded.origins[path] == f"env {key.environment_variable}"


def test_a_command_line_of_k3s_works_as_it_is(load: Load) -> None:
    loaded = load(
        flags={
            "--cluster-cidr": "10.42.0.0/16",
            "--conntrack-max-per-core": "0",
            "--conntrack-tcp-timeout-close-wait": "0s",
            "--conntrack-tcp-timeout-established": "0s",
            "--healthz-bind-address": "127.0.0.1",
            "--hostname-override": "server0",
            "--kubeconfig": "/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig",
            "--proxy-mode": "iptables",
        }
    )
    config = loaded.config
    assert config.source.kubeconfig == Path("/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig")
    assert config.node.name == "server0"
    assert config.traffic.cluster_cidrs == ("10.42.0.0/16",)
    assert config.conntrack.max_per_core == 0
    assert config.conntrack.tcp_established_timeout.nanoseconds == 0
    assert str(config.reporting.healthz_bind_address) == "127.0.0.1:10256"
    assert [str(field) for field in loaded.ignored] == [
        "flag --proxy-mode: --proxy-mode is ignored: there is one mode, nftables maps"
    ]


@pytest.mark.parametrize(
    ("text", "level"), [("0", "info"), ("2", "info"), ("4", "debug"), ("=9", "debug")], ids=["0", "2", "4", "Go's -v=9"]
)
def test_verbosity(load: Load, text: str, level: str) -> None:
    assert load(flags={"-v": text}).config.logging.level.value == level


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            {"--masquerade-all": "maybe"},
            "flag --masquerade-all: traffic.masqueradeAll: must be true or false, not 'maybe'",
        ),
        ({"--oom-score-adj": "low"}, "flag --oom-score-adj: process.oomScoreAdj: must be a whole number, not 'low'"),
        ({"-v": "loud"}, "flag -v: logging.level: must be a number from 0 up, not 'loud'"),
        (
            {"--node-name": "a", "--hostname-override": "b"},
            "flag --hostname-override: node.name: contradicts flag --node-name",
        ),
        ({"-v": "4", "--log-level": "info"}, "flag --log-level: logging.level: contradicts flag -v"),
        (
            {"--cluster-cidr": "10.0.0.0/8,10.0.0.0/8"},
            "flag --cluster-cidr: traffic.clusterCIDRs: 10.0.0.0/8 is listed twice",
        ),
    ],
)
def test_wrong_flags(load: Load, refused: Refuse, flags: dict[str, str], line: str) -> None:
    assert refused(load, flags=flags) == [line]


def test_two_flags_for_one_option_may_agree(load: Load) -> None:
    assert load(flags={"--node-name": "a", "--hostname-override": "a"}).config.node.name == "a"


@pytest.mark.parametrize("name", list(IGNORED_FLAGS))
def test_a_flag_without_effect_is_listed_unless_it_says_the_usual(load: Load, name: str) -> None:
    flag = IGNORED_FLAGS[name]
    assert [field.key for field in load(flags={name: "unusual"}).ignored] == [name]
    assert all(load(flags={name: text}).ignored == () for text in flag.usual)


def test_every_flag_sets_an_option() -> None:
    assert {flag.path for flag in FLAGS.values()} <= KEYS.keys()
