"""The API server's address is in use, unless it is that of its own Service."""

from types import SimpleNamespace

import pytest

from nodeagent.model.objects import ObjectMeta, Service, ServiceSpec
from nodeagent.proxy.source.api_address import OWN_SERVICE, api_servers_in_use

KUBERNETES = Service(
    ObjectMeta(name="kubernetes", namespace="default"), ServiceSpec(cluster_ips=("10.96.0.1", "fd00::1"))
)


@pytest.mark.parametrize(
    ("hosts", "services", "expected"),
    [
        pytest.param(("192.0.2.1",), {}, (("192.0.2.1", "the API server"),), id="nothing known yet"),
        pytest.param(
            ("192.0.2.1",), {OWN_SERVICE: KUBERNETES}, (("192.0.2.1", "the API server"),), id="another address"
        ),
        pytest.param(("fd00::1",), {OWN_SERVICE: KUBERNETES}, (), id="its own Service"),
        pytest.param((), {OWN_SERVICE: KUBERNETES}, (), id="none, or a pod's way to it"),
        pytest.param(
            ("192.0.2.1", "fd00::1", "192.0.2.2"),
            {OWN_SERVICE: KUBERNETES},
            (("192.0.2.1", "the API server"), ("192.0.2.2", "the API server")),
            id="several",
        ),
    ],
)
def test_in_use(hosts: tuple[str, ...], services: dict[object, Service], expected: tuple[tuple[str, str], ...]) -> None:
    assert api_servers_in_use(hosts, SimpleNamespace(services=services)) == expected
