"""Any objects: every name has the records that the rules give it, and no other name has any.

The rules are written here a second time, the other way round: from the objects to all names there are.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.reversename
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
from nodeagent.names.feed.feed_messages import Begin, End, Namespaces, Put, Settings
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Waiting
from nodeagent.names.zone.service_names import names_of
from tests.harness.dns.no_upstream import NoUpstream
from tests.harness.effort import examples

ZONES = ("cluster.local.", "other.test.")
NAMESPACES = ("shop", "svc", "empty")
NAMES = ("web", "db", "svc")
LONG = "p" * 63
PORT_NAMES = ("http", "http", "dns", "", LONG)
HOSTS = ("web-0", "web-1", "10-0-0-1", "", "", "")
ADDRESSES = {
    "IPv4": ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"),
    "IPv6": ("fd00::1", "fd00::", "fd00:0:0::2", "FD00::3", "2001:db8::a:1"),
}
TARGETS = ("www.example.com", "web.shop.svc.cluster.local", "db.svc.svc.other.test.")


class One(NamedTuple):
    service: Service
    slices: tuple[EndpointSlice, ...]


@st.composite
def slices(draw: st.DrawFn, namespace: str, number: int) -> EndpointSlice:
    family = draw(st.sampled_from(["IPv4", "IPv4", "IPv6", "FQDN"]))
    pool = ADDRESSES.get(family, ("host.example",))
    endpoints = draw(
        st.lists(
            st.builds(
                lambda addresses, host, ready, terminating: Endpoint(
                    tuple(addresses),
                    conditions=None if ready == "none" else EndpointConditions(ready, terminating, terminating),
                    hostname=host or None,
                ),
                st.lists(st.sampled_from(pool), min_size=1, max_size=2, unique=True),
                st.sampled_from(HOSTS),
                st.sampled_from([True, True, None, "none", False]),
                st.sampled_from([None, True, False]),
            ),
            max_size=4,
        )
    )
    ports = draw(
        st.lists(
            st.builds(
                EndpointPort,
                name=st.sampled_from([*PORT_NAMES, None]),
                protocol=st.sampled_from(["TCP", "UDP", None]),
                port=st.sampled_from([80, 8080, None]),
            ),
            max_size=3,
        )
    )
    return EndpointSlice(ObjectMeta(name=f"s{number}", namespace=namespace), family, tuple(endpoints), tuple(ports))


@st.composite
def clusters(draw: st.DrawFn) -> list[One]:
    keys = draw(
        st.lists(
            st.tuples(st.sampled_from(NAMESPACES[:2]), st.sampled_from(NAMES)), min_size=1, max_size=4, unique=True
        )
    )
    found = []
    for index, (namespace, name) in enumerate(keys):
        kind = draw(st.sampled_from(["None", "None", "4", "6", "46", "ExternalName"]))
        ips = {"None": ("None",), "4": (f"10.96.0.{index}",), "6": (f"fd00:96::{index}",), "ExternalName": ()}
        cluster_ips = ips.get(kind, (*ips["4"], *ips["6"]))
        ports = draw(
            st.lists(
                st.builds(
                    ServicePort,
                    st.sampled_from([80, 443]),
                    st.sampled_from([*PORT_NAMES, None]),
                    st.sampled_from(["TCP", "UDP", None]),
                ),
                max_size=3,
            )
        )
        spec = ServiceSpec(
            type="ExternalName" if kind == "ExternalName" else "ClusterIP",
            cluster_ip=cluster_ips[0] if cluster_ips else None,
            cluster_ips=cluster_ips or None,
            ports=tuple(ports),
            external_name=draw(st.sampled_from(TARGETS)) if kind == "ExternalName" else None,
        )
        its_slices = tuple(draw(slices(namespace, number)) for number in range(draw(st.integers(0, 3))))
        found.append(One(Service(ObjectMeta(name=name, namespace=namespace), spec), its_slices))
    return found


# -- the rules, from the objects to names -----------------------------------------------------------


class Ready(NamedTuple):
    host: str
    address: str
    ports: tuple[tuple[str, str, int | None], ...]


Node = dict[str, set[str]]
"""By type the data of the records at a name; "+" the additional ones."""


def ready_endpoints(one: One) -> Iterator[Ready]:
    for found in one.slices:
        if found.address_type == "FQDN":
            continue
        ports = tuple((p.name or "", (p.protocol or "TCP").lower(), p.port) for p in found.ports or ())
        for endpoint in found.endpoints or ():
            if endpoint.conditions is not None and endpoint.conditions.ready is False:
                continue
            for text in endpoint.addresses or ():
                dashed = text.lower().replace(".", "-").replace(":", "-")
                host = endpoint.hostname or (dashed + "0" if dashed.endswith("-") else dashed)
                yield Ready(host, str(ip_address(text)), ports)


def addresses_node(node: Node, addresses: list[str]) -> None:
    for address in addresses:
        node["AAAA" if ":" in address else "A"].add(address)


def srv_node(node: Node, pairs: list[tuple[str, str, int | None]]) -> None:
    """pairs: target, address, port."""
    for target, address, port in pairs:
        if port is not None:
            node["SRV"].add(f"0 {max(1, math.floor(100 / len(pairs)))} {port} {target}")
            node["+"].add(f"{target} {'AAAA' if ':' in address else 'A'} {address}")


def zone_of(cluster: list[One], zone: str) -> dict[str, Node]:
    """Every name of a zone that has records or stands above one that has, ExternalNames with a CNAME alone."""
    nodes: dict[str, Node] = defaultdict(lambda: defaultdict(set))
    for namespace in NAMESPACES:
        nodes[f"{namespace}.svc.{zone}"].clear()
    for one in cluster:
        base = f"{one.service.metadata.name}.{one.service.metadata.namespace}.svc.{zone}"
        spec = one.service.spec
        if spec.type == "ExternalName":
            nodes[base]["CNAME"] = {(spec.external_name or "").rstrip(".") + "."}
            continue
        endpoints = list(ready_endpoints(one))
        pairs: dict[str, list[tuple[str, str, int | None]]] = defaultdict(list)
        for host, address, ports in endpoints:
            own = f"{host}.{base}"
            pairs[own] += [(own, address, port) for _, _, port in ports or (("", "", None),)]
        if spec.cluster_ip == "None":
            listed = [(f"{host}.{base}", address, port) for host, address, ports in endpoints for port in ports]
            pairs[base] = [pair for host in list(pairs) for pair in pairs[host]]
            if not pairs[base]:
                del pairs[base]
        else:
            own_ports: list[tuple[str, str, int | None]] = [
                (p.name or "", (p.protocol or "TCP").lower(), p.port) for p in spec.ports or ()
            ]
            ips = [str(ip_address(text)) for text in spec.cluster_ips or ()]
            listed = [(base, ip, port) for ip in ips for port in own_ports]
            pairs[base] = [(base, ip, port) for ip in ips for _, _, port in own_ports or [("", "", None)]]
        for target, address, (name, protocol, number) in listed:
            if 0 < len(name) < len(LONG):
                pairs[f"_{name}._{protocol}.{base}"].append((target, address, number))
                nodes[f"_{protocol}.{base}"].clear()
        for owner, found in pairs.items():
            addresses_node(nodes[owner], [address for _, address, _ in found])
            srv_node(nodes[owner], found)
    return nodes


def pointers(cluster: list[One]) -> dict[str, set[str]]:
    """By address the targets of its PTR records."""
    found: dict[str, set[str]] = defaultdict(set)
    zone = ZONES[0]
    for one in cluster:
        base = f"{one.service.metadata.name}.{one.service.metadata.namespace}.svc.{zone}"
        if one.service.spec.type != "ExternalName":
            for host, address, _ in ready_endpoints(one):
                found[address].add(f"{host}.{base}")
    for one in cluster:
        if one.service.spec.type != "ExternalName" and one.service.spec.cluster_ip != "None":
            base = f"{one.service.metadata.name}.{one.service.metadata.namespace}.svc.{zone}"
            for text in one.service.spec.cluster_ips or ():
                found[str(ip_address(text))] = {base}
    return found


# -- what is answered -------------------------------------------------------------------------------


def front_of(cluster: list[One]) -> Front:
    fed = ReceivedState(Settings(zones=tuple(zone.rstrip(".") for zone in ZONES)))
    for message in (
        Begin(),
        Namespaces(NAMESPACES, 1),
        Put(tuple(names_of(one.service, one.slices) for one in cluster), 1),
        End(1),
    ):
        fed.take(message)
    return Front(fed.answers, NoUpstream())


def ask(front: Front, name: str, kind: str, *, size: int | None = None) -> dns.message.Message | None:
    """The reply by UDP to a query with this EDNS size; without one by TCP. None when it is to be asked upstream."""
    query = dns.message.make_query(name, kind, use_edns=0 if size else -1, payload=size or 0)
    packet = query.to_wire()
    answer = (front.answers.reply(packet) if size else None) or front.reply(packet, tcp=size is None)
    if isinstance(answer, Waiting):
        return None
    assert answer is not None
    assert size is None or len(answer) <= max(size, 512)
    return dns.message.from_wire(answer)


def data(section: list[dns.rrset.RRset]) -> list[str]:
    return [one.to_text() for rrset in section for one in rrset]


def with_case(name: str, seed: int) -> str:
    return "".join(char.upper() if seed >> index % 16 & 1 else char for index, char in enumerate(name))


def missing_names(base: str) -> Iterator[str]:
    """Names that must not be there, near one that is."""
    first, _, rest = base.partition(".")
    yield f"x.{base}"
    yield f"*.{rest}"
    yield f"any.{rest}"
    yield f"{first}x.{rest}"
    yield f"_nothing._tcp.{base}"
    yield f"http.tcp.{base}"
    yield f"_http._tcp.x.{base}"


@settings(max_examples=examples(15), deadline=None)
@given(clusters(), st.integers(0, 0xFFFF), st.sampled_from(["TXT", "HTTPS", "CNAME", "NS", "SOA", "ANY", "DS"]))
def test_every_name_has_its_records_and_no_other_name_any(cluster: list[One], case: int, other: str) -> None:
    front = front_of(cluster)
    for zone in ZONES:
        nodes = zone_of(cluster, zone)
        bases = [f"{one.service.metadata.name}.{one.service.metadata.namespace}.svc.{zone}" for one in cluster]
        for name in {*nodes, *bases, *(missing for base in bases for missing in missing_names(base))}:
            node = nodes.get(name)
            if node is not None and "CNAME" in node:
                continue
            for kind in ("A", "AAAA", "SRV", other):
                reply = ask(front, with_case(name, case), kind)
                assert reply is not None
                about = f"{name} {kind}"
                assert reply.question[0].name.to_text() == with_case(name, case)
                assert reply.rcode() == (dns.rcode.NXDOMAIN if node is None else dns.rcode.NOERROR), about
                expected = (node or {}).get(kind, set())
                assert sorted(data(reply.answer)) == sorted(expected), about
                assert reply.flags & dns.flags.AA
                assert bool(reply.authority) is (not expected), about
                extra = (node or {}).get("+", set()) if kind == "SRV" else set()
                lines = {
                    f"{rrset.name.to_text().lower()} {dns.rdatatype.to_text(rrset.rdtype)} {one}"
                    for rrset in reply.additional
                    for one in rrset
                }
                assert lines == extra, about


@settings(max_examples=examples(15), deadline=None)
@given(clusters())
def test_every_address_points_to_its_names_and_no_other_anywhere(cluster: list[One]) -> None:
    front = front_of(cluster)
    expected = pointers(cluster)
    for address in {*expected, "10.0.0.1", "10.0.0.9", "fd00::", "fd00::9", "10.96.0.77"}:
        name = dns.reversename.from_address(address).to_text()
        for kind in ("PTR", "A", "ANY"):
            reply = ask(front, name.upper(), kind)
            if address not in expected:
                assert reply is None, address
                continue
            assert reply is not None, address
            assert reply.rcode() == dns.rcode.NOERROR
            assert sorted(data(reply.answer)) == sorted(expected[address] if kind == "PTR" else ()), address


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(1, 130), st.sampled_from([None, "p"]), st.integers(0, 4096), st.booleans())
def test_an_answer_that_is_too_long_is_cut_and_says_so(count: int, port: str | None, size: int, six: bool) -> None:
    prefix = "fd00::" if six else "10.1.0."
    addresses = tuple(f"{prefix}{index:x}" if six else f"{prefix}{index}" for index in range(1, count + 1))
    endpoints = tuple(Endpoint((address,)) for address in addresses)
    spec = ServiceSpec(cluster_ip="None", cluster_ips=("None",))
    ports = (EndpointPort(name=port, port=80),)
    one = EndpointSlice(ObjectMeta(name="s", namespace="shop"), "IPv6" if six else "IPv4", endpoints, ports)
    front = front_of([One(Service(ObjectMeta(name="web", namespace="shop"), spec), (one,))])
    kind = "SRV" if port else "AAAA" if six else "A"
    name = f"_p._tcp.web.shop.svc.{ZONES[0]}" if port else f"web.shop.svc.{ZONES[0]}"
    whole = ask(front, name, kind)
    assert whole is not None
    assert len(data(whole.answer)) == count
    for _ in range(2):
        reply = ask(front, name, kind, size=max(size, 1))
        assert reply is not None
        reported = data(reply.answer)
        assert set(reported) <= set(data(whole.answer))
        assert len(set(reported)) == len(reported)
        assert bool(reply.flags & dns.flags.TC) is (len(reported) < count)


@settings(max_examples=examples(15), deadline=None)
@given(clusters())
def test_an_external_name_is_its_cname_and_what_that_leads_to(cluster: list[One]) -> None:
    front = front_of(cluster)
    zone = ZONES[0]
    nodes = zone_of(cluster, zone) | zone_of(cluster, ZONES[1])
    for name, node in nodes.items():
        for target in node.get("CNAME", ()):
            reply = ask(front, name, "CNAME")
            assert reply is not None
            assert data(reply.answer) == [target]
            below = ask(front, f"x.{name}", "A")
            assert below is not None
            assert below.rcode() == dns.rcode.NXDOMAIN
            there = nodes.get(target)
            if target == "www.example.com.":
                assert ask(front, name, "A") is None
            elif there is None:
                missing = ask(front, name, "A")
                assert missing is not None
                assert missing.rcode() == dns.rcode.NXDOMAIN
                assert data(missing.answer) == [target]
            elif "CNAME" not in there:
                found = ask(front, name, "A")
                assert found is not None
                assert sorted(data(found.answer)) == sorted({target, *there.get("A", set())})


@settings(max_examples=examples(100), deadline=None)
@example("--1.2.3.4")
@example("--ffff-102-304")
@example("1-2-3-4")
@example("fd00-10--")
@given(st.text("0123456789abcdef-.%:x", min_size=1, max_size=40))
def test_a_pods_label_is_an_address_or_no_name(label: str) -> None:
    """As Go's net.ParseIP reads it, which takes no zone and no leading zero, and a mapped address for the one in it; a dot
    inside a label comes to it with a backslash."""
    front = front_of([])
    packet = bytes((0, 0, 1, 0)) + b"\0\1" + bytes(6) + bytes((len(label),)) + label.encode()
    reply = front.reply(packet + b"\4shop\3pod\7cluster\5local\0\0\x1c\0\1", tcp=False)
    assert isinstance(reply, bytes)
    short = label.count("-") == 3 and "--" not in label
    try:
        address = None if "%" in label or "." in label else ip_address(label.replace("-", "." if short else ":"))
    except ValueError:
        address = None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    message = dns.message.from_wire(reply)
    assert message.rcode() == (dns.rcode.NXDOMAIN if address is None else dns.rcode.NOERROR)
    assert data(message.answer) == ([str(address)] if address is not None and address.version == 6 else [])


def test_a_query_for_upstream_is_refused_without_upstream() -> None:
    front = front_of([])
    waiting = front.reply(dns.message.make_query("www.example.com.", "A").to_wire(), tcp=False)
    assert isinstance(waiting, Waiting)
    assert dns.message.from_wire(asyncio.run(front.resolve(waiting))).rcode() == dns.rcode.REFUSED
