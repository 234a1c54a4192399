"""What names mean while objects change: state decides, never the order of changes."""

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
)
from nodeagent.names.zone import prepared_answers
from nodeagent.names.zone.index import Index
from nodeagent.names.zone.lookup import Lookup, ZoneSettings
from nodeagent.names.zone.prepared_answers import PreparedAnswers
from nodeagent.names.zone.service_names import EndpointGroup, NamedPort, ServiceNames, host_of, names_of
from nodeagent.wire.dns.message import read_message
from nodeagent.wire.dns.query import read_query

HTTP = NamedPort("http", "tcp", 80)


def answers_of(*services: ServiceNames, settings: ZoneSettings | None = None) -> PreparedAnswers:
    answers = PreparedAnswers(Lookup(settings or ZoneSettings(), Index()), synced=True)
    for one in services:
        answers.put(one, 1)
    return answers


def ask(answers: PreparedAnswers, name: str, kind: str = "A", *, limit: int = 512) -> dns.message.Message:
    packet = dns.message.make_query(name, kind).to_wire()
    quick = answers.reply(packet)
    if quick is None:
        made = answers.answer(read_query(packet), limit)
        assert isinstance(made, bytes), f"{name} {kind} goes upstream"
        quick = made
    return dns.message.from_wire(quick)


def said(answers: PreparedAnswers, name: str, kind: str = "A") -> list[str]:
    """rcode, then the data of the answer's records in order of text."""
    message = ask(answers, name, kind)
    return [dns.rcode.to_text(message.rcode()), *sorted(one.to_text() for rrset in message.answer for one in rrset)]


def goes_upstream(answers: PreparedAnswers, name: str, kind: str = "A") -> bool:
    packet = dns.message.make_query(name, kind).to_wire()
    return answers.reply(packet) is None and not isinstance(answers.answer(read_query(packet), 512), bytes)


def headless(name: str, *addresses: str, hosts: tuple[str, ...] = ()) -> ServiceNames:
    return ServiceNames("shop", name, headless=True, groups=(EndpointGroup((HTTP,), addresses, hosts),))


def cluster_ip(name: str, *addresses: str, endpoints: tuple[str, ...] = ()) -> ServiceNames:
    groups = (EndpointGroup((HTTP,), endpoints),) if endpoints else ()
    return ServiceNames("shop", name, cluster_ips=addresses, ports=(HTTP,), groups=groups)


WEB = "web.shop.svc.cluster.local."


def test_a_change_is_in_the_next_answer_also_when_it_was_prepared() -> None:
    answers = answers_of(headless("web", "10.0.0.1"))
    assert said(answers, WEB) == said(answers, WEB) == ["NOERROR", "10.0.0.1"]
    answers.put(headless("web", "10.0.0.2"), 2)
    assert said(answers, WEB) == ["NOERROR", "10.0.0.2"]
    assert said(answers, "10-0-0-1.web.shop.svc.cluster.local.") == ["NXDOMAIN"]
    answers.remove(ObjectKey("shop", "web"), 3)
    assert said(answers, WEB) == ["NXDOMAIN"]


def test_a_change_of_one_service_keeps_the_answers_of_others() -> None:
    answers = answers_of(headless("web", "10.0.0.1"), headless("db", "10.0.0.2"))
    said(answers, WEB)
    said(answers, "db.shop.svc.cluster.local.")
    held = answers.bytes_held
    answers.put(headless("web", "10.0.0.3"), 2)
    packet = dns.message.make_query("db.shop.svc.cluster.local.", "A").to_wire()
    assert held
    assert answers.reply(packet) is not None


def test_a_name_that_comes_into_being_was_not_remembered_as_missing() -> None:
    answers = answers_of(cluster_ip("other", "10.96.0.2"))
    assert said(answers, WEB) == ["NXDOMAIN"]
    answers.put(cluster_ip("web", "10.96.0.1"), 2)
    assert said(answers, WEB) == ["NOERROR", "10.96.0.1"]


def test_the_reverse_name_of_an_address_follows_every_service_that_has_it() -> None:
    reverse = "1.0.0.10.in-addr.arpa."
    answers = answers_of(headless("web", "10.0.0.1"))
    assert said(answers, reverse, "PTR") == ["NOERROR", "10-0-0-1.web.shop.svc.cluster.local."]
    answers.put(headless("db", "10.0.0.1", hosts=("db-0",)), 2)
    assert said(answers, reverse, "PTR") == [
        "NOERROR",
        "10-0-0-1.web.shop.svc.cluster.local.",
        "db-0.db.shop.svc.cluster.local.",
    ]
    answers.put(headless("web"), 3)
    assert said(answers, reverse, "PTR") == ["NOERROR", "db-0.db.shop.svc.cluster.local."]
    answers.put(cluster_ip("vip", "10.0.0.1"), 4)
    assert said(answers, reverse, "PTR") == ["NOERROR", "vip.shop.svc.cluster.local."]
    answers.remove(ObjectKey("shop", "vip"), 5)
    answers.remove(ObjectKey("shop", "db"), 5)
    assert goes_upstream(answers, reverse, "PTR")


def test_before_the_first_list_names_fail_and_others_go_upstream() -> None:
    answers = PreparedAnswers(Lookup(ZoneSettings(), Index()))
    for name in (WEB, "cluster.local.", "1.0.0.10.in-addr.arpa."):
        message = ask(answers, name)
        assert message.rcode() == dns.rcode.SERVFAIL
        assert message.flags & dns.flags.AA
    assert said(answers, "dns-version.cluster.local.", "TXT") == ["NOERROR", '"1.1.0"']
    assert goes_upstream(answers, "example.com.")
    answers.synced = True
    assert said(answers, WEB) == ["NXDOMAIN"]


def test_the_serial_is_the_time_of_the_last_change() -> None:
    answers = answers_of(cluster_ip("web", "10.96.0.1"))
    serials = []
    for time in (1_700_000_000, 1_700_000_007):
        answers.put(cluster_ip("web", "10.96.0.1"), time)
        serials.append(ask(answers, "nothing.shop.svc.cluster.local.").authority[0][0].serial)
    assert serials == [1_700_000_000, 1_700_000_007]


def test_clients_that_take_the_first_address_are_spread() -> None:
    answers = answers_of(headless("web", "10.0.0.1", "10.0.0.2", "10.0.0.3"))
    firsts = [ask(answers, WEB).answer[0][0].to_text() for _ in range(30)]
    assert {firsts.count(address) for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3")} == {10}


def test_a_big_service_is_cut_for_udp_and_whole_by_tcp() -> None:
    addresses = [f"10.1.{index // 250}.{index % 250}" for index in range(1000)]
    answers = answers_of(headless("web", *addresses))
    packet = dns.message.make_query(WEB, "A").to_wire()
    for made in (answers.answer(read_query(packet), 512), answers.reply(packet)):
        assert isinstance(made, bytes)
        assert len(made) <= 512
        assert dns.message.from_wire(made).flags & dns.flags.TC
    assert sorted(one.to_text() for one in ask_tcp(answers, WEB).answer[0]) == sorted(addresses)
    assert said(answers, "10-1-3-9.web.shop.svc.cluster.local.") == ["NOERROR", "10.1.3.9"]


def ask_tcp(answers: PreparedAnswers, name: str) -> dns.message.Message:
    made = answers.answer(read_query(dns.message.make_query(name, "A").to_wire()), 65535)
    assert isinstance(made, bytes)
    return dns.message.from_wire(made)


def test_every_zone_answers_and_reverse_names_are_of_the_first() -> None:
    settings = ZoneSettings(zones=("cluster.local", "k8s.example.org."))
    answers = answers_of(cluster_ip("web", "10.96.0.1"), settings=settings)
    for zone in ("cluster.local.", "K8s.Example.org."):
        assert said(answers, f"web.shop.svc.{zone}") == ["NOERROR", "10.96.0.1"]
        assert said(answers, f"nothing.shop.svc.{zone}") == ["NXDOMAIN"]
    assert said(answers, "1.0.96.10.in-addr.arpa.", "PTR") == ["NOERROR", WEB]
    assert goes_upstream(answers, "web.shop.svc.example.org.")


@pytest.mark.parametrize(
    ("target", "kind", "answer", "authority"),
    [
        ("www.example.com", "ANY", ["www.example.com."], []),
        ("nothere.shop.svc.cluster.local", "A", ["nothere.shop.svc.cluster.local."], ["SOA"]),
        ("cluster.local", "A", ["cluster.local."], ["SOA"]),
        ("Cluster.Local.", "SOA", ["cluster.local.", "SOA"], []),
        ("web.shop.svc.cluster.local", "SOA", ["web.shop.svc.cluster.local."], ["SOA"]),
    ],
)
def test_below_a_chain_a_soa_says_that_its_end_has_nothing(
    target: str, kind: str, answer: list[str], authority: list[str]
) -> None:
    """ANY asks for the CNAME alone, and a SOA that was asked for is an answer."""
    answers = answers_of(ServiceNames("shop", "ext", external_name=target), cluster_ip("web", "10.96.0.1"))
    message = ask(answers, "ext.shop.svc.cluster.local.", kind)
    assert [data_of(one) for one in message.answer] == answer
    assert [data_of(one) for one in message.authority] == authority


def data_of(rrset: dns.rrset.RRset) -> str:
    return "SOA" if rrset.rdtype == dns.rdatatype.SOA else str(rrset[0].to_text())


@pytest.mark.parametrize(
    ("pods", "name", "expected"),
    [
        ("insecure", "1-2-3-4.shop.pod.cluster.local.", ["NOERROR", "1.2.3.4"]),
        ("insecure", "1-2-3-4.nowhere.pod.cluster.local.", ["NXDOMAIN"]),
        ("verified", "10-0-0-7.shop.pod.cluster.local.", ["NOERROR", "10.0.0.7"]),
        ("verified", "10-0-0-8.shop.pod.cluster.local.", ["NXDOMAIN"]),
        ("verified", "10-0-0-7.empty.pod.cluster.local.", ["NXDOMAIN"]),
        ("disabled", "10-0-0-7.shop.pod.cluster.local.", ["NXDOMAIN"]),
        ("disabled", "shop.pod.cluster.local.", ["NXDOMAIN"]),
        ("disabled", "pod.cluster.local.", ["NXDOMAIN"]),
        ("insecure", "fe80--1%1.shop.pod.cluster.local.", ["NXDOMAIN"]),
        ("insecure", "shop.pod.cluster.local.", ["NOERROR"]),
        ("insecure", "empty.svc.cluster.local.", ["NOERROR"]),
        ("insecure", "nowhere.svc.cluster.local.", ["NXDOMAIN"]),
    ],
)
def test_pods_and_namespaces(pods: str, name: str, expected: list[str]) -> None:
    answers = answers_of(cluster_ip("web", "10.96.0.1"), settings=ZoneSettings(pods=pods))
    answers.lookup.index.set_namespaces(["empty", "shop"])
    answers.lookup.index.put_pods([("10.0.0.7", ["shop"])])
    assert said(answers, name) == expected


def test_without_a_dns_service_the_server_itself_is_the_name_server() -> None:
    answers = answers_of(settings=ZoneSettings(addresses=("169.254.20.10", "fd00::53")))
    assert said(answers, "cluster.local.", "NS") == ["NOERROR", "ns.dns.cluster.local."]
    assert said(answers, "ns.dns.cluster.local.") == ["NOERROR", "169.254.20.10"]
    assert said(answers, "ns.dns.cluster.local.", "AAAA") == ["NOERROR", "fd00::53"]


def test_names_come_from_services_and_ready_endpoints() -> None:
    service = Service(
        ObjectMeta(name="web", namespace="shop"),
        ServiceSpec(cluster_ip="None", cluster_ips=("None",), ports=(ServicePort(80, "HTTP"),)),
    )
    endpoints = (
        Endpoint(("10.0.0.1",), EndpointConditions(ready=True), hostname="Web-0"),
        Endpoint(("10.0.0.2",), EndpointConditions(ready=False, serving=True)),
        Endpoint(("10.0.0.3",), None),
        Endpoint(("no address",), None),
    )
    ports = (EndpointPort("HTTP", 8080), EndpointPort("none"))
    made = names_of(
        service,
        [
            EndpointSlice(ObjectMeta(name="a"), "IPv4", endpoints, ports),
            EndpointSlice(ObjectMeta(name="b"), "FQDN", (Endpoint(("web.example.com",)),), ports),
        ],
    )
    assert made == ServiceNames(
        "shop",
        "web",
        headless=True,
        ports=(NamedPort("http", "tcp", 80),),
        groups=(
            EndpointGroup(
                (NamedPort("http", "tcp", 8080), NamedPort("none", "tcp", -1)),
                ("10.0.0.1", "10.0.0.3"),
                ("web-0", ""),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.244.1.5", "10-244-1-5"), ("fd00:10:244::5", "fd00-10-244--5"), ("fd00:10:244:2::", "fd00-10-244-2--0")],
)
def test_the_name_of_an_endpoint_without_a_name(address: str, host: str) -> None:
    assert host_of(address) == host


ADDRESSES = st.sampled_from([f"10.0.0.{index}" for index in range(6)] + ["fd00::1", "fd00::2"])
HOSTS = st.sampled_from(["", "a", "b"])
PORTS = st.sampled_from([HTTP, NamedPort("dns", "udp", 53), NamedPort("", "tcp", 1), NamedPort("x", "tcp", -1)])


@st.composite
def services(draw: st.DrawFn) -> ServiceNames:
    name = draw(st.sampled_from(["web", "db", "x"]))
    groups = []
    for _ in range(draw(st.integers(0, 2))):
        addresses = tuple(draw(st.lists(ADDRESSES, min_size=1, max_size=3)))
        hosts = tuple(draw(HOSTS) for _ in addresses)
        groups.append(EndpointGroup(tuple(draw(st.lists(PORTS, max_size=2))), addresses, hosts if any(hosts) else ()))
    kind = draw(st.sampled_from(["headless", "clusterip", "external"]))
    if kind == "external":
        return ServiceNames("shop", name, external_name=draw(st.sampled_from(["db.shop.svc.cluster.local", "a.b"])))
    ips = ("10.96.0.1",) if kind == "clusterip" else ()
    ports = tuple(draw(st.lists(PORTS, max_size=2))) if ips else ()
    return ServiceNames("shop", name, kind == "headless", ips, "", ports, tuple(groups))


QUESTIONS = [
    dns.message.make_query(f"{below}{name}.shop.svc.cluster.local.", kind, id=1).to_wire()
    for name in ("web", "db")
    for below, kinds in (
        ("", "A AAAA SRV CNAME"),
        ("a.", "A SRV"),
        ("10-0-0-1.", "A"),
        ("_http._tcp.", "SRV"),
        ("_udp.", "A"),
    )
    for kind in kinds.split()
] + [
    dns.message.make_query(name, kind, id=1).to_wire()
    for name, kind in (
        ("1.0.0.10.in-addr.arpa.", "PTR"),
        ("1.0.96.10.in-addr.arpa.", "PTR"),
        ("shop.svc.cluster.local.", "A"),
    )
]


def everything_said(answers: PreparedAnswers) -> list[object]:
    out: list[object] = []
    for packet in QUESTIONS:
        made = answers.reply(packet) or answers.answer(read_query(packet), 65535)
        if isinstance(made, bytes):
            out.append((packet[12:], made[:4], [sorted(section) for section in read_message(made)[1]]))
        else:
            out.append((packet[12:], made.alias))
    return out


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(services(), st.sampled_from(["web", "db", "x"])), min_size=1, max_size=8))
def test_after_any_changes_answers_are_those_of_a_fresh_start(changes: list[ServiceNames | str]) -> None:
    grown = answers_of()
    latest: dict[str, ServiceNames] = {}
    for change in changes:
        if isinstance(change, str):
            grown.remove(ObjectKey("shop", change), 1)
            latest.pop(change, None)
        else:
            grown.put(change, 1)
            latest[change.name] = change
        everything_said(grown)
    assert everything_said(grown) == everything_said(answers_of(*latest.values()))


def test_names_that_do_not_exist_push_out_no_ready_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_answers, "READY_LIMIT", 1000)
    answers = answers_of(ServiceNames("shop", "web", cluster_ips=("10.96.0.1",), ports=(HTTP,)))
    wanted = dns.message.make_query("web.shop.svc.cluster.local.", "A").to_wire()
    answers.answer(read_query(wanted), 512)
    assert answers.reply(wanted) is not None
    for number in range(1010):
        packet = dns.message.make_query(f"n{number}.shop.svc.cluster.local.", "A").to_wire()
        answers.answer(read_query(packet), 512)
        assert answers.reply(packet) is not None
    assert wanted[2:] in answers.ready
    assert len(answers.ready) <= 501
