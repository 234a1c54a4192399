"""Events of the kernel's nftrace, put together to packets."""

from nodeagent.diagnosis.trace.followed import OWN_HELPER, packets_of
from nodeagent.wire.netlink.nf_tables.tracing import TraceEvent

HELPER = f"{OWN_HELPER}-1"


def event(packet: int, chain: str, *, table: str = "nodeagent", source_port: int = 0) -> TraceEvent:
    return TraceEvent(packet, table, chain, 1, stops=False, destination="", source_port=source_port)


def test_events_belong_to_a_packet_by_its_id() -> None:
    first, second = event(7, "prerouting", source_port=40001), event(8, "prerouting", source_port=40002)
    rest = event(7, "pick-1")

    assert packets_of([first, second, rest]) == [(first, rest), (second,)]


def test_a_packet_that_a_bridge_hands_on_to_the_routing_goes_on_under_another_id() -> None:
    heads = [event(id_, "prerouting", table=HELPER, source_port=40000 + id_) for id_ in (7, 8)]
    own = [event(id_, "prerouting", source_port=40000 + id_) for id_ in (7, 8)]
    later = [event(id_, "postrouting", source_port=40000 + id_ - 10) for id_ in (18, 17)]
    last = event(17, "from-cluster-ip")

    found = packets_of([heads[0], own[0], heads[1], own[1], *later, last])

    assert found == [(own[0], later[1], last), (own[1], later[0])]
