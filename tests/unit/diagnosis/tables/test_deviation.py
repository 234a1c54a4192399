"""A whole table that is as wanted has no Service with a deviation, and one element that differs is seen either way."""

from collections.abc import Callable

import pytest

from nodeagent.diagnosis.tables.deviation import deviations_of_service, is_as_wanted, wanted_image
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.image.image import TableImage, empty_image
from nodeagent.proxy.dataplane.program import schema

IPV4 = Family.IPV4
NODE = NodeState()


def state(number: int) -> ServiceState:
    key = ObjectKey("default", f"s{number}")
    route = Route(tuple(Backend(f"10.{number}.0.{last}", 80) for last in (1, 2, 3)))
    port = ServicePortName(key, "http", Protocol.TCP)
    address = f"10.96.0.{number}"
    frontend = Frontend(FrontendKind.CLUSTER_IP, IPV4, address, Protocol.TCP, 80, port, route)
    return ServiceState(key, cluster_ips=(address,), frontends=(frontend,))


STATES = {one.key: one for one in map(state, range(1, 5))}


def remove(found: TableImage, name: str) -> None:
    del found[name][max(found[name])]


def change(found: TableImage, name: str) -> None:
    found[name][max(found[name])] = b"\x0a\x09\x09\x09\x00\x50\x00\x00"


def leave(found: TableImage, name: str) -> None:
    """The control."""


@pytest.mark.parametrize(
    ("damage", "name", "differing"),
    [
        (leave, schema.BACKENDS, []),
        (remove, schema.BACKENDS, ["default/s4"]),
        (change, schema.BACKENDS, ["default/s4"]),
        (remove, schema.FRONTENDS, ["default/s4"]),
        (remove, schema.CLUSTER_IPS, ["default/s4"]),
    ],
)
def test_a_table_and_its_services_are_compared_alike(
    damage: Callable[[TableImage, str], None], name: str, differing: list[str]
) -> None:
    wanted, _ = wanted_image(STATES, NODE, IPV4, empty_image(schema.DATA_SETS))
    found = {each: dict(elements) for each, elements in wanted.items()}
    damage(found, name)
    assert is_as_wanted(STATES, NODE, IPV4, found) is not bool(differing)
    services = [str(key) for key, one in STATES.items() if deviations_of_service(key, one, IPV4, found)]
    assert services == differing
