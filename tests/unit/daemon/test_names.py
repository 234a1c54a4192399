"""Where names are answered, as the configuration has it."""

import pytest

from nodeagent.config.load import load_config
from nodeagent.daemon.part_options import dns_places


@pytest.mark.parametrize(("enabled", "places"), [("true", {("192.168.0.5", 53), ("fd00::5", 5353)}), ("false", set())])
def test_places_of_names_are_those_where_they_are_answered(enabled: str, places: set[tuple[str, int]]) -> None:
    environment = {
        "NODEAGENT_DNS_ENABLED": enabled,
        "NODEAGENT_DNS_LISTEN": "192.168.0.5,[fd00::5]:5353",
        "NODEAGENT_SOURCE_MANIFESTS": "/etc",
    }
    loaded = load_config(file=None, environment=environment, flags={}, hostname="node-a")
    assert dns_places(loaded.config) == places
