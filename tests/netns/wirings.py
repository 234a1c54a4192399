"""Both kinds of pods, for modules and folders in which the wiring can matter: `pod_bridge = both_kinds_of_pods`."""

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE, POD_BRIDGE


@pytest.fixture(
    name="pod_bridge",
    scope="module",
    params=[pytest.param(POD_BRIDGE, id="pods behind a bridge"), pytest.param(NO_BRIDGE, id="pods routed")],
)
def both_kinds_of_pods(request: pytest.FixtureRequest) -> str:
    """The bridge that pods of `cluster` are ports of, or that no bridge exists."""
    bridge: str = request.param
    return bridge
