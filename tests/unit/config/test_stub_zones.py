"""Who is asked for the names of a zone: as a mapping, a list or a flag, and what is said of wrong ones."""

import pytest
from pydantic import ValidationError

from nodeagent.config.contradictions import idle_options
from nodeagent.config.keys import KEYS, parse_text, plain_option
from nodeagent.config.options import DnsConfig, Options

WRITTEN = ["consul.local=10.0.0.1:53", "consul.local=[fd00::1]:5353", "corp.example=10.0.0.2:53"]
KEY = KEYS["dns.stubZones"]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"consul.local": ["10.0.0.1", "[fd00::1]:5353"], "Corp.Example.": ["10.0.0.2"]}, id="mapping"),
        pytest.param(["consul.local=10.0.0.1", "Consul.Local.=[fd00::1]:5353", "corp.example=10.0.0.2:53"], id="list"),
        pytest.param(
            parse_text(KEY.form, "consul.local=10.0.0.1, consul.local=[fd00::1]:5353,corp.example=10.0.0.2"), id="flag"
        ),
        pytest.param(WRITTEN, id="as shown"),
    ],
)
def test_stub_zones_are_written_in_canonical_form(value: object) -> None:
    config = DnsConfig.model_validate({"stubZones": value})
    assert plain_option(KEY, config.stub_zones) == WRITTEN


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["consul.local"], "must be ZONE=IP:port, not 'consul.local'"),
        ({"consul.local": []}, "'consul.local' needs a list of its servers"),
        ({"consul.local": "10.0.0.1"}, "'consul.local' needs a list of its servers"),
        (["consul..local=10.0.0.1"], "is not the name of a zone"),
        ({"consul.local": ["dns.example"]}, "is not an IP address|must be IP:port"),
        ({"consul.local": ["10.0.0.1:0"]}, "is not a number from 1 to 65535"),
        ([53], "ZONE=IP:port"),
    ],
)
def test_each_mistake_is_named(value: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DnsConfig.model_validate({"stubZones": value})


def test_a_stub_zone_within_our_own_has_no_effect() -> None:
    dns = {"stubZones": {"svc.cluster.local": ["10.0.0.1"], "mycluster.local": ["10.0.0.1"]}}
    config = Options.model_validate({"source": {"manifests": "/m"}, "node": {"name": "n"}, "dns": dns})
    idle = dict(idle_options(config))
    assert idle["dns.stubZones"].startswith("svc.cluster.local:")
    assert len([key for key, _ in idle_options(config) if key == "dns.stubZones"]) == 1
