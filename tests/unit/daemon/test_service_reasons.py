"""What the agent finds out about Services while a thread translates others."""

from collections.abc import Iterator

from nodeagent.daemon.service_reasons import taken_ends
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Endpoint, EndpointSlice, ObjectMeta


def test_a_thread_may_add_services_while_addresses_are_compared() -> None:
    class Growing(tuple[str, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[str]:
            key = ObjectKey("default", f"web-{len(states) + 1}")
            states[key] = ServiceState(key)
            return super().__iter__()

    first, second = ObjectKey("default", "web-1"), ObjectKey("default", "web-2")
    states = {
        first: ServiceState(first, cluster_ips=Growing(("10.96.0.1",))),
        second: ServiceState(second, cluster_ips=("10.96.0.2",)),
    }
    endpoints = tuple(Endpoint((address,)) for address in ("10.96.0.2", "10.244.1.7"))
    found = taken_ends([EndpointSlice(ObjectMeta("web-x", "default"), "IPv4", endpoints)], states, ())
    assert found.cluster_ips == {"10.96.0.2"}
