"""Endpoints become the slices the endpoint-slice-mirroring controller would make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.objects import (
    ANNOTATION_TRIGGER_TIME,
    LABEL_SERVICE_NAME,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointSubset,
    ObjectMeta,
    Service,
)
from nodeagent.proxy.source.mirror import (
    ANNOTATION_LAST_APPLIED,
    ANNOTATION_LEADER,
    LABEL_SKIP_MIRROR,
    MAX_ADDRESSES_PER_SUBSET,
    mirror_endpoints,
)

HTTP = EndpointPort("http", 8080, "TCP")
DNS = EndpointPort("dns", 53, "UDP")
WEB = Service(ObjectMeta(name="web", namespace="shop"))


def endpoints(*subsets: EndpointSubset, **meta: dict[str, str]) -> Endpoints:
    return Endpoints(ObjectMeta(name="web", namespace="shop", **meta), subsets)  # type: ignore[arg-type]


def subset(ready: str = "", *, waiting: str = "", ports: tuple[EndpointPort, ...] = (HTTP,)) -> EndpointSubset:
    """A subset from addresses in text: ``10.0.0.1@node-a 10.0.0.2``."""
    return EndpointSubset(_addresses(ready), _addresses(waiting), ports)


def _addresses(text: str) -> tuple[EndpointAddress, ...]:
    parts = (entry.partition("@") for entry in text.split())
    return tuple(EndpointAddress(address, node or None) for address, _, node in parts)


def listing(slices: tuple[EndpointSlice, ...]) -> list[str]:
    """``IPv4 http:8080/TCP 10.0.0.1+ 10.0.0.2-``: + is ready, - is not."""
    lines = []
    for made in slices:
        ports = ",".join(f"{port.name}:{port.port}/{port.protocol}" for port in made.ports or ())
        members = " ".join(
            f"{(endpoint.addresses or ('',))[0]}{'+' if endpoint.conditions and endpoint.conditions.ready else '-'}"
            for endpoint in made.endpoints or ()
        )
        lines.append(f"{made.address_type} {ports} {members}")
    return sorted(lines)


@pytest.mark.parametrize(
    ("subsets", "expected"),
    [
        pytest.param([], [], id="no subsets, no slices"),
        pytest.param([subset()], [], id="a subset without addresses makes no slice"),
        pytest.param([subset("10.0.0.1 10.0.0.2")], ["IPv4 http:8080/TCP 10.0.0.1+ 10.0.0.2+"], id="one subset"),
        pytest.param(
            [subset("10.0.0.1", waiting="10.0.0.2")], ["IPv4 http:8080/TCP 10.0.0.1+ 10.0.0.2-"], id="not ready"
        ),
        pytest.param(
            [subset("10.0.0.1 fd00::1")],
            ["IPv4 http:8080/TCP 10.0.0.1+", "IPv6 http:8080/TCP fd00::1+"],
            id="families are separated",
        ),
        pytest.param(
            [subset("10.0.0.1"), subset("10.0.0.2")],
            ["IPv4 http:8080/TCP 10.0.0.1+ 10.0.0.2+"],
            id="subsets with equal ports are merged",
        ),
        pytest.param(
            [subset("10.0.0.1", ports=(HTTP, DNS)), subset("10.0.0.2", ports=(DNS, HTTP))],
            ["IPv4 dns:53/UDP,http:8080/TCP 10.0.0.1+ 10.0.0.2+"],
            id="the order of ports does not matter",
        ),
        pytest.param(
            [subset("10.0.0.1"), subset("10.0.0.1", ports=(DNS,))],
            ["IPv4 dns:53/UDP 10.0.0.1+", "IPv4 http:8080/TCP 10.0.0.1+"],
            id="other ports, other slice",
        ),
        pytest.param(
            [subset("10.0.0.1", ports=(EndpointPort(None, 80, None),))],
            ["IPv4 :80/TCP 10.0.0.1+"],
            id="an unnamed port has the empty name, the protocol defaults to TCP",
        ),
        pytest.param([subset("10.0.0.1", ports=())], ["IPv4  10.0.0.1+"], id="no ports (headless)"),
        pytest.param(
            [subset("10.0.0.300 nonsense 010.0.0.1 ::ffff:10.0.0.2")],
            ["IPv4 http:8080/TCP 10.0.0.1+ 10.0.0.2+"],
            id="addresses are canonical, invalid ones are left out",
        ),
        pytest.param(
            [subset(waiting="10.0.0.1"), subset("10.0.0.1")],
            ["IPv4 http:8080/TCP 10.0.0.1+"],
            id="both ready and not ready is ready",
        ),
    ],
)
def test_subsets_become_slices(subsets: list[EndpointSubset], expected: list[str]) -> None:
    assert listing(mirror_endpoints(endpoints(*subsets), WEB)) == expected


def test_slice_belongs_to_the_service_and_keeps_node_names() -> None:
    (made,) = mirror_endpoints(
        endpoints(
            subset("10.0.0.1@node-a"),
            labels={"app": "web", LABEL_SERVICE_NAME: "liar"},
            annotations={ANNOTATION_TRIGGER_TIME: "2026-01-01T00:00:00Z", ANNOTATION_LAST_APPLIED: "{}"},
        ),
        WEB,
    )
    assert made.metadata.namespace == "shop"
    assert made.metadata.labels is not None
    assert made.metadata.labels[LABEL_SERVICE_NAME] == "web"
    assert made.metadata.labels["app"] == "web"
    assert made.metadata.annotations == {ANNOTATION_TRIGGER_TIME: "2026-01-01T00:00:00Z"}
    assert made.endpoints is not None
    assert made.endpoints[0].node_name == "node-a"


OPTED_OUT = [
    pytest.param(endpoints(subset("10.0.0.1"), labels={LABEL_SKIP_MIRROR: "true"}), WEB, id="skip-mirror label"),
    pytest.param(endpoints(subset("10.0.0.1"), annotations={ANNOTATION_LEADER: ""}), WEB, id="leader election lock"),
    pytest.param(endpoints(subset("10.0.0.1")), None, id="no service"),
]


@pytest.mark.parametrize(("listed", "service"), OPTED_OUT)
def test_opted_out_endpoints_are_not_mirrored(listed: Endpoints, service: Service | None) -> None:
    assert mirror_endpoints(listed, service) == ()


@pytest.mark.parametrize(("listed", "service"), OPTED_OUT)
def test_endpoints_made_by_the_controller_cannot_opt_out(listed: Endpoints, service: Service | None) -> None:
    assert listing(mirror_endpoints(listed, service, honour_opt_out=False)) == ["IPv4 http:8080/TCP 10.0.0.1+"]


def test_skip_mirror_counts_only_when_true() -> None:
    assert mirror_endpoints(endpoints(subset("10.0.0.1"), labels={LABEL_SKIP_MIRROR: "false"}), WEB)


def test_a_subset_contributes_at_most_1000_addresses_ready_ones_first() -> None:
    ready = " ".join(f"10.0.{number // 250}.{number % 250}" for number in range(MAX_ADDRESSES_PER_SUBSET - 1))
    (made,) = mirror_endpoints(endpoints(subset(ready, waiting="10.9.0.1 10.9.0.2")), WEB)
    assert made.endpoints is not None
    assert len(made.endpoints) == MAX_ADDRESSES_PER_SUBSET
    assert made.endpoints[-1].addresses == ("10.9.0.1",)


def test_merged_subsets_fill_one_slice_of_at_most_1000() -> None:
    halves = [" ".join(f"10.{half}.{n // 250}.{n % 250}" for n in range(600)) for half in (1, 2)]
    (made,) = mirror_endpoints(endpoints(*(subset(half) for half in halves)), WEB)
    assert len(made.endpoints or ()) == MAX_ADDRESSES_PER_SUBSET


def test_names_do_not_depend_on_the_addresses() -> None:
    names = {
        tuple(made.metadata.name for made in mirror_endpoints(endpoints(subset(addresses)), WEB))
        for addresses in ("10.0.0.1", "10.0.0.2 10.0.0.3")
    }
    assert len(names) == 1


def test_a_long_name_is_cut_to_what_the_api_allows() -> None:
    long = Endpoints(ObjectMeta(name="x" * 253, namespace="shop"), (subset("10.0.0.1 fd00::1"),))
    names = [made.metadata.name for made in mirror_endpoints(long, WEB)]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 253


SUBSETS = st.lists(
    st.builds(
        subset,
        st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", "nonsense"])).map(" ".join),
        waiting=st.lists(st.sampled_from(["10.0.0.1", "10.0.0.3", "fd00::2"])).map(" ".join),
        ports=st.sampled_from([(HTTP,), (DNS,), (HTTP, DNS), (DNS, HTTP), ()]),
    ),
    max_size=5,
)


@given(SUBSETS)
def test_slices_never_repeat_a_name_or_an_address(subsets: list[EndpointSubset]) -> None:
    slices = mirror_endpoints(endpoints(*subsets), WEB)
    assert len({made.metadata.name for made in slices}) == len(slices)
    for made in slices:
        addresses = [endpoint.addresses for endpoint in made.endpoints or ()]
        assert len(addresses) == len(set(addresses)) > 0


@given(SUBSETS, st.randoms())
def test_order_of_subsets_decides_nothing_but_order(subsets: list[EndpointSubset], random: object) -> None:
    def content(order: list[EndpointSubset]) -> set[tuple[str, frozenset[object]]]:
        slices = mirror_endpoints(endpoints(*order), WEB)
        return {(made.metadata.name, frozenset(made.endpoints or ())) for made in slices}

    assert content(subsets) == content(subsets[::-1])
