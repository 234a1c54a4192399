"""For any Service that is nearly ordinary: if it is plainly healthy, the full explanation calls it healthy."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.diagnosis.explain.plain_health import is_plainly_healthy
from nodeagent.diagnosis.explain.service import explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.model.addresses import Family
from nodeagent.model.addresses_in_use import addresses_in_use
from nodeagent.model.objects import (
    LABEL_HEADLESS,
    LABEL_SERVICE_NAME,
    Endpoint,
    EndpointConditions,
    EndpointHints,
    EndpointPort,
    EndpointSlice,
    ForZone,
    ObjectMeta,
    Service,
    ServiceSpec,
)
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service
from tests.harness.effort import examples
from tests.harness.objects import make_service, service_port

CONTEXT = Context(node_name="here", zone="zone-a", node_addresses=("192.168.0.2", "2001:db8::2"))
ADDRESSES = {
    Family.IPV4: ("10.244.1.1", "10.244.1.2", "10.244.2.3", "10.244.2.4", "010.244.1.5", "10.96.0.77", "192.168.0.2"),
    Family.IPV6: ("fd00:244::1", "fd00:244::2", "fd00:244:0::3", "fd00:96::77", "2001:db8::2"),
}


is_usual = st.shared(st.booleans(), key="is usual")
"""Half of the Services have nothing strange: with a little chance for each part, hardly one would."""


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    mixed = st.sampled_from([usual] * 12 + list(others))
    return is_usual.flatmap(lambda always: st.just(usual) if always else mixed)


ready = mostly(
    EndpointConditions(True),
    None,
    EndpointConditions(False),
    EndpointConditions(False, True, True),
    EndpointConditions(True, True, True),
)
hints = mostly(None, EndpointHints((ForZone("zone-a"),)), EndpointHints((ForZone("zone-b"),)))
port_names = mostly("http", "https", None)
services = st.builds(
    lambda addresses, ports, spec, balanced: make_service(
        "web", *addresses, ports=ports, spec=spec, load_balancer_ips=balanced
    ),
    st.sampled_from([("10.96.0.10",), ("fd00:96::a",), ("10.96.0.10", "fd00:96::a"), ("10.96.0.10",)]),
    mostly(
        (service_port(80, name="http"),),
        (service_port(80, name="http"), service_port(443, name="https")),
        (service_port(80, name="http", node_port=30080),),
        (service_port(70000, name="http"),),
    ),
    st.builds(
        ServiceSpec,
        internal_traffic_policy=mostly(None, "Local"),
        external_traffic_policy=mostly(None, "Local"),
        external_ips=mostly(None, ("198.51.100.1",), ("nonsense",)),
    ),
    mostly((), ("198.51.100.9",)),
)


@st.composite
def slices_of(draw: st.DrawFn) -> tuple[EndpointSlice, ...]:
    found = []
    usual = draw(is_usual)
    for number in range(draw(st.integers(usual, 3))):
        family = draw(st.sampled_from(Family))
        addresses = ADDRESSES[family][: 2 if usual else None]
        endpoints = [
            Endpoint((address,), draw(ready), draw(mostly("here", "there", None)), hints=draw(hints))
            for address in draw(st.lists(st.sampled_from(addresses), min_size=usual, max_size=3))
        ]
        ports = [
            EndpointPort(name, draw(mostly(8080, 30080, 80)), "TCP")
            for name in draw(st.lists(port_names, min_size=1, max_size=2))
        ]
        labels = {LABEL_SERVICE_NAME: "web"} | ({LABEL_HEADLESS: ""} if draw(mostly(False, True)) else {})
        metadata = ObjectMeta(f"web-{number}", "default", labels=labels)
        found.append(EndpointSlice(metadata, family.value, tuple(endpoints), tuple(ports)))
    return tuple(found)


def facts_of(service: Service, slices: tuple[EndpointSlice, ...], later: tuple[EndpointSlice, ...]) -> ServiceFacts:
    """later: the slices as they are now; the translation had `slices`."""
    state = translate_service(service, slices, CONTEXT)
    return ServiceFacts(
        service=service,
        slices=later,
        context=CONTEXT,
        state=state,
        problems=state.problems,
        taken=addresses_in_use([state], CONTEXT.node_addresses),
        service_ranges=("10.96.0.0/24", "fd00:96::/112"),
    )


def test_a_service_that_is_plainly_healthy_is_healthy() -> None:
    seen: Counter[tuple[bool, bool]] = Counter()

    @given(service=services, slices=slices_of(), later=st.none() | slices_of())
    @settings(max_examples=examples(300), deadline=None)
    def holds(service: Service, slices: tuple[EndpointSlice, ...], later: tuple[EndpointSlice, ...] | None) -> None:
        facts = facts_of(service, slices, slices if later is None else later)
        plain, healthy = is_plainly_healthy(facts), explain_service(facts).healthy
        seen[plain, healthy] += 1
        assert healthy or not plain

    holds()
    assert seen[True, True] > 0
    assert seen[False, False] > 0
