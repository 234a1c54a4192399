"""The format of a saved state: what was saved comes back, and anything else is refused."""

import hashlib
import zlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.objects import (
    LABEL_SERVICE_NAME,
    Endpoint,
    EndpointConditions,
    EndpointHints,
    EndpointPort,
    EndpointSlice,
    ForZone,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Namespace,
    Node,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Service,
    ServiceCIDR,
    ServiceCIDRSpec,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from nodeagent.proxy.source.saved import saved_bytes
from nodeagent.proxy.source.saved.saved_bytes import BATCH, SavedObject, decode, encode
from nodeagent.proxy.source.saved.state_origin import StateOrigin, StateUnusable, check

ORIGIN = StateOrigin("c1", "node-a", for_names=True)
SAVED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
META = ObjectMeta(name="web", namespace="demo", uid="u", labels={LABEL_SERVICE_NAME: "web"})
SERVICE = Service(
    META,
    ServiceSpec(
        cluster_ip="10.0.0.1", cluster_ips=("10.0.0.1", "fd00::1"), ports=(ServicePort(80, target_port="http"),)
    ),
    ServiceStatus(LoadBalancerStatus((LoadBalancerIngress(ip="192.0.2.1", ip_mode="VIP"),))),
)
ENDPOINT = Endpoint(
    ("10.1.0.1",), EndpointConditions(ready=True), "node-b", "z", EndpointHints((ForZone("z"),)), hostname="web-0"
)
SLICE = EndpointSlice(META, "IPv4", (ENDPOINT,), (EndpointPort("http", 8080, "TCP"),))
NODE = Node(META, NodeSpec(pod_cidrs=("10.1.0.0/24",)), NodeStatus((NodeAddress("InternalIP", "192.0.2.9"),)))
CIDR = ServiceCIDR(META, ServiceCIDRSpec(("10.0.0.0/16",)))
OBJECTS: list[list[SavedObject]] = [[SERVICE], [SLICE], [NODE], [CIDR], [Namespace(ObjectMeta(name="demo"))]]
CONTENT = encode(ORIGIN, SAVED, OBJECTS)


def read(content: bytes) -> list[SavedObject]:
    return [obj for batch in decode(content)[1] for obj in batch]


def test_a_saved_state_reads_back_the_same() -> None:
    head, _ = decode(CONTENT)
    assert (head.origin, head.saved) == (ORIGIN, SAVED)
    assert read(CONTENT) == [obj for of_kind in OBJECTS for obj in of_kind]


def test_a_long_kind_comes_in_batches() -> None:
    many: list[SavedObject] = [ServiceCIDR(ObjectMeta(name=str(number))) for number in range(2 * BATCH + 1)]
    batches = [list(batch) for batch in decode(encode(ORIGIN, SAVED, [[], many]))[1]]
    assert [len(batch) for batch in batches] == [BATCH, BATCH, 1]
    assert [one for batch in batches for one in batch] == many


def test_every_beginning_of_a_file_is_refused() -> None:
    """What a power cut leaves of a file that was written without care."""
    for length in range(len(CONTENT)):
        with pytest.raises(StateUnusable):
            decode(CONTENT[:length])


@pytest.mark.parametrize("flip", [0xFF, 0x01], ids=["all bits", "one bit"])
def test_every_changed_byte_is_refused(flip: int) -> None:
    for place, byte in enumerate(CONTENT):
        with pytest.raises(StateUnusable):
            decode(CONTENT[:place] + bytes([byte ^ flip]) + CONTENT[place + 1 :])


@settings(deadline=None)
@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=1, max_size=64))
def test_every_changed_file_is_refused(place: int, written: bytes) -> None:
    changed = CONTENT[:place] + written + CONTENT[place + len(written) :]
    if changed != CONTENT:
        with pytest.raises(StateUnusable):
            decode(changed)


@given(st.permutations(range(8)))
def test_pieces_in_another_order_are_refused(order: list[int]) -> None:
    """What a disk leaves that wrote the last piece first, or one piece twice."""
    size = -(-len(CONTENT) // 8)
    content = b"".join(CONTENT[size * number : size * (number + 1)] for number in order)
    if content != CONTENT:
        with pytest.raises(StateUnusable):
            decode(content)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(b"", id="no head"),
        pytest.param(b"{}\n", id="a head without fields"),
        pytest.param(
            zlib.decompress(CONTENT.split(b"\n", 2)[2]).split(b"\n")[0] + b'\n{"kind":"Pod","items":[]}\n',
            id="another kind",
        ),
        pytest.param(
            zlib.decompress(CONTENT.split(b"\n", 2)[2]).split(b"\n")[0] + b'\n{"kind":"Node","items":[{}]}\n',
            id="no Node",
        ),
    ],
)
def test_a_right_checksum_of_wrong_contents_is_refused(lines: bytes) -> None:
    packed = zlib.compress(lines)
    with pytest.raises(StateUnusable, match="is damaged"):
        read(b"nodeagent state 1\n" + hashlib.sha256(packed).hexdigest().encode() + b"\n" + packed)


def test_a_file_that_unpacks_to_more_than_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_bytes, "LARGEST_BYTES", 1000)
    with pytest.raises(StateUnusable, match="has more than"):
        decode(CONTENT)


def test_other_releases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateUnusable, match="another format"):
        decode(CONTENT.replace(b"state 1", b"state 2"))
    monkeypatch.setitem(saved_bytes.KINDS, "Other", Endpoint)  # as if a kind had other fields
    with pytest.raises(StateUnusable, match="other fields"):
        decode(CONTENT)


WEEK = timedelta(days=7)


@pytest.mark.parametrize(
    ("origin", "age", "reason"),
    [
        pytest.param(ORIGIN, timedelta(days=6), None, id="of this node"),
        pytest.param(
            StateOrigin("c1", "node-a", for_names=False), timedelta(), None, id="with names that nobody wants"
        ),
        pytest.param(ORIGIN, timedelta(days=-400), None, id="a clock that is behind"),
        pytest.param(ORIGIN, timedelta(days=7, seconds=1), "older than", id="too old"),
        pytest.param(
            StateOrigin("c2", "node-a", for_names=True), timedelta(), "another cluster", id="of another cluster"
        ),
        pytest.param(
            StateOrigin("c1", "node-b", for_names=True),
            timedelta(),
            "is of node node-a, and this is node-b",
            id="of another node",
        ),
    ],
)
def test_a_state_is_used_by_its_own_node_for_so_long(origin: StateOrigin, age: timedelta, reason: str | None) -> None:
    if reason is None:
        check(ORIGIN, SAVED, origin, SAVED + age, WEEK)
    else:
        with pytest.raises(StateUnusable, match=reason):
            check(ORIGIN, SAVED, origin, SAVED + age, WEEK)


def test_a_state_without_names_is_not_used_for_names() -> None:
    with pytest.raises(StateUnusable, match="cluster DNS was off"):
        check(StateOrigin("c1", "node-a", for_names=False), SAVED, ORIGIN, SAVED, WEEK)
