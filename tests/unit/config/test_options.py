"""AgentConfig: defaults, immutability, and values it cannot hold."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.durations import Duration
from nodeagent.config.keys import KEYS, Form, groups
from nodeagent.config.options import DataplaneConfig, NodeConfig, SourceConfig, TrafficConfig
from nodeagent.config.values import BindAddress, DetectLocalMode, EndpointsApi, LogFormat, LogLevel, TableOwnership
from nodeagent.model.addresses import Family


def test_the_defaults() -> None:
    config = AgentConfig(node=NodeConfig(name="worker-1"))
    assert config.source.kubeconfig is None
    assert config.source.endpoints_api is EndpointsApi.AUTO
    assert config.source.resync_period.seconds == 900
    assert config.node == NodeConfig(name="worker-1", address=None, families="auto")
    assert config.traffic.detect_local_mode is DetectLocalMode.CLUSTER_CIDR
    assert config.traffic.node_port_addresses == ("primary",)
    assert config.dataplane.table_ownership is TableOwnership.AUTO
    assert config.dataplane.interface_name == "nodeagent0"
    assert config.dataplane.min_sync_period == Duration(0)
    assert config.conntrack.max_per_core == 32768
    assert config.conntrack.tcp_established_timeout.seconds == 86400
    assert config.reporting.healthz_bind_address == BindAddress("0.0.0.0", 10256)
    assert config.reporting.metrics_bind_address == BindAddress("127.0.0.1", 10249)
    assert config.logging.level is LogLevel.INFO
    assert config.logging.format is LogFormat.TEXT
    assert config.process.oom_score_adj == -999


def test_every_default_is_a_value_a_file_could_hold() -> None:
    for name, group in groups():
        required = {"name": "worker-1"} if name == "node" else {}
        by_default = group.model_validate(required)
        given = {field: getattr(by_default, field) for field in group.model_fields}
        assert group.model_validate(given) == by_default


def test_a_configuration_cannot_be_changed() -> None:
    config = AgentConfig(node=NodeConfig(name="worker-1"))
    with pytest.raises(ValidationError, match="frozen"):
        config.dataplane.counters = False


def test_a_configuration_cannot_have_other_fields() -> None:
    with pytest.raises(ValidationError, match="colour"):
        AgentConfig.model_validate({"node": {"name": "worker-1", "colour": "red"}})


def test_a_configuration_cannot_contradict_itself() -> None:
    with pytest.raises(ValidationError, match=r"source\.manifests cannot be combined with source\.kubeconfig"):
        AgentConfig(
            node=NodeConfig(name="worker-1"),
            source=SourceConfig(kubeconfig=Path("/a"), manifests=Path("/b")),
        )
    with pytest.raises(ValidationError, match="must not be greater than"):
        AgentConfig(
            node=NodeConfig(name="worker-1"),
            dataplane=DataplaneConfig(min_sync_period=Duration(2), sync_period=Duration(1)),
        )


def test_python_names_and_file_keys_say_the_same() -> None:
    assert TrafficConfig(cluster_cidrs=("10.0.0.0/8",)) == TrafficConfig.model_validate(
        {"clusterCIDRs": ["10.0.0.0/8"]}
    )


def test_values_arrive_in_canonical_form() -> None:
    config = NodeConfig(name=" Worker-1 ", address="0:0::1", families=(Family.IPV6,))
    assert (config.name, config.address, config.families) == ("worker-1", "::1", (Family.IPV6,))
    traffic = TrafficConfig(cluster_cidrs=("10.1.2.3/8", "FD00::1/64"))
    assert traffic.cluster_cidrs == ("10.0.0.0/8", "fd00::/64")


def test_every_option_is_documented_and_has_its_own_variable() -> None:
    for key in KEYS.values():
        assert key.description.endswith((".", "…."))
        assert key.unit
    assert len({key.environment_variable for key in KEYS.values()}) == len(KEYS)


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("traffic.clusterCIDRs", Form.LIST),
        ("node.families", Form.LIST),
        ("traffic.masqueradeAll", Form.SWITCH),
        ("process.oomScoreAdj", Form.NUMBER),
        ("dataplane.minSyncPeriod", Form.TEXT),
        ("reporting.healthzBindAddress", Form.TEXT),
        ("source.kubeconfig", Form.TEXT),
    ],
)
def test_how_text_becomes_a_value(path: str, form: Form) -> None:
    assert KEYS[path].form is form
