"""Finds the records for a question: from names of the zones to records, by the latest index.

Decided here: which names exist, NODATA or NXDOMAIN, what follows a CNAME, and what is asked upstream.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from nodeagent.model.addresses import Family, family_of, pack_address, parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.names.zone.index import Index, ServiceEntry
from nodeagent.names.zone.reverse import IN_ADDR, IP6, address_of, pod_address
from nodeagent.names.zone.service_names import NO_PORT, NamedPort
from nodeagent.wire.dns import domain_names
from nodeagent.wire.dns.codes import Rcode, RecordType
from nodeagent.wire.dns.message import Record

SPECIFICATION = b"1.1.0"
SPECIFICATION_TTL = 28800
TREES = frozenset({b"svc", b"pod"})
_LABELS_OF_A_NAMESPACE, _LABELS_OF_A_POD, _LABELS_OF_A_PORT = 2, 3, 2
"""Labels of namespace.svc, address.namespace.pod, and _name._protocol."""
LONGEST_CHAIN = 16
"""CNAMEs that are followed; a longer chain is treated as a loop."""
MOST_PAIRS = 4096
"""Pairs of address and port that one answer considers: a message of 65,535 bytes holds at most 1,700 SRV records."""
FAMILY_KIND = {Family.IPV4: RecordType.A, Family.IPV6: RecordType.AAAA}


class ZoneSettings(Struct, frozen=True):
    """The settings of the cluster's zones.
    zones: names of the cluster's zones; PTR records use the first. pods: which pod names are answered: ``insecure``
    every one that encodes an address, ``verified`` those of running pods, ``disabled`` none. server: the Service that
    is the cluster's DNS. addresses: those of `ns.dns` if there is no such Service."""

    zones: tuple[str, ...] = ("cluster.local.",)
    ttl: int = 30
    pods: str = "insecure"
    server: ObjectKey = ObjectKey("kube-system", "kube-dns")
    addresses: tuple[str, ...] = ()


class LookupResult(NamedTuple):
    """The result for a question. zone: its SOA is in an answer without records. source: the only Service on which the
    answer depends, None if it depends on more. alias: the name that is left to ask upstream."""

    zone: bytes
    rcode: int = Rcode.NOERROR
    answer: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    source: ServiceEntry | None = None
    alias: bytes | None = None


class Pair(NamedTuple):
    """An address and a port of a name. host: the label before the Service's name, empty for the Service itself."""

    host: str
    address: str
    port: int


class Lookup:
    """Answers questions from an index."""

    def __init__(self, settings: ZoneSettings, index: Index) -> None:
        self._settings = settings
        self.index = index
        self.pods = settings.pods
        """Which pod names are answered."""
        self._zones = tuple(
            sorted((domain_names.from_text(zone.lower()) for zone in settings.zones), key=len, reverse=True)
        )
        self._primary = domain_names.from_text(settings.zones[0].lower())

    def zone_of(self, name: bytes) -> bytes | None:
        """Returns the zone (also a reverse zone) that contains a name in lower case, or None."""
        for zone in (*self._zones, IN_ADDR, IP6):
            if name.endswith(zone) and domain_names.is_below(name, zone):
                return zone
        return None

    def find(self, name: bytes, kind: int) -> LookupResult | None:
        """Returns the records of a name (lower case); None if the question is sent upstream unchanged."""
        zone = self.zone_of(name)
        if zone is None:
            return None
        if zone in (IN_ADDR, IP6):
            return self._reverse(name, zone, kind)
        found = self._records_at(name, zone, kind)
        return found if found.alias is None or kind == RecordType.CNAME else self._follow(name, found, kind)

    def _follow(self, name: bytes, first: LookupResult, kind: int) -> LookupResult:
        """Follows a chain of CNAMEs as far as it stays in the zones."""
        if kind == RecordType.ANY:
            return first._replace(alias=None)
        records = list(first.answer)
        target = first.alias
        seen = {name}
        while target is not None:
            if target in seen or len(records) > LONGEST_CHAIN:
                return LookupResult(first.zone, Rcode.SERVFAIL, tuple(records))
            seen.add(target)
            zone = self.zone_of(target)
            if zone is None or zone in (IN_ADDR, IP6):
                return LookupResult(first.zone, answer=tuple(records), alias=target)
            found = self._records_at(target, zone, kind)
            records += found.answer
            if found.alias is None:
                return found._replace(answer=tuple(records), source=None)
            target = found.alias
        return LookupResult(first.zone, answer=tuple(records))

    def _records_at(self, name: bytes, zone: bytes, kind: int) -> LookupResult:
        """Returns the records at one name of a cluster zone."""
        labels = domain_names.labels_of(name[: len(name) - len(zone)] + b"\0")
        if not labels:
            return self._apex(zone, kind)
        if labels[-1] in TREES:
            return self._in_tree(name, labels, zone, kind)
        if labels == [b"dns-version"]:
            text = bytes((len(SPECIFICATION),)) + SPECIFICATION
            return LookupResult(
                zone, answer=(Record(name, RecordType.TXT, SPECIFICATION_TTL, text),) if kind == RecordType.TXT else ()
            )
        if labels == [b"ns", b"dns"]:
            return LookupResult(zone, answer=self._address_records(name, self._server_addresses(), kind))
        return LookupResult(zone) if labels == [b"dns"] else LookupResult(zone, Rcode.NXDOMAIN)

    def _in_tree(self, name: bytes, labels: list[bytes], zone: bytes, kind: int) -> LookupResult:
        """Returns the records at `svc`, `pod` and below."""
        for_pods = labels[-1] == b"pod"
        if len(labels) > _LABELS_OF_A_NAMESPACE:
            return (self._pod if for_pods else self._service)(name, labels, zone, kind)
        exists = not (for_pods and self._settings.pods == "disabled") and (
            len(labels) == 1 or self.index.has_namespace(labels[0])
        )
        return LookupResult(zone) if exists else LookupResult(zone, Rcode.NXDOMAIN)

    def _apex(self, zone: bytes, kind: int) -> LookupResult:
        if kind != RecordType.NS:
            return LookupResult(zone)
        cluster_zone = self._primary if zone in (IN_ADDR, IP6) else zone
        server = self._server()
        if server is None:
            target = domain_names.encode([b"ns", b"dns"])[:-1] + cluster_zone
        else:
            target = self._name_of(server, cluster_zone)
        addresses = self._server_addresses()
        return LookupResult(
            zone,
            answer=(self._record(zone, RecordType.NS, target),),
            additional=tuple(self._address_record(target, address) for address in addresses),
        )

    def _server(self) -> ServiceEntry | None:
        key = self._settings.server
        entry = self.index.find(key.namespace.encode(), key.name.encode())
        return entry if entry is not None and entry.names.cluster_ips else None

    def _server_addresses(self) -> tuple[str, ...]:
        server = self._server()
        return server.names.cluster_ips if server is not None else self._settings.addresses

    def _pod(self, name: bytes, labels: list[bytes], zone: bytes, kind: int) -> LookupResult:
        namespace = labels[-2]
        missing = LookupResult(zone, Rcode.NXDOMAIN)
        if len(labels) > _LABELS_OF_A_POD or self._settings.pods == "disabled":
            return missing
        address = pod_address(labels[0])
        if address is None or not self.index.has_namespace(namespace):
            return missing
        if self._settings.pods == "verified" and not self.index.has_pod(namespace, address):
            return missing
        return LookupResult(zone, answer=self._address_records(name, (address,), kind))

    def _service(self, name: bytes, labels: list[bytes], zone: bytes, kind: int) -> LookupResult:
        entry = self.index.find(labels[-2], labels[-3])
        if entry is None:
            return LookupResult(zone, Rcode.NXDOMAIN)
        below = labels[:-3]
        if entry.names.external_name:
            return LookupResult(zone, Rcode.NXDOMAIN, source=entry) if below else self._external(name, entry, zone)
        if len(below) == 1 and below[0].startswith(b"_"):
            protocol = below[0][1:].decode("latin-1")
            exists = any(port.protocol == protocol and has_name(port) for port in entry.every_port())
            return LookupResult(zone, Rcode.NOERROR if exists else Rcode.NXDOMAIN, source=entry)
        every = entry.names.headless and not below and kind != RecordType.SRV  # then ports do not matter
        pairs = [] if every else list(islice(_pairs_at(entry, below), MOST_PAIRS))
        addresses = tuple(dict.fromkeys(entry.addresses() if every else (pair.address for pair in pairs)))
        if not addresses and not (entry.names.cluster_ips and not below):
            return LookupResult(zone, Rcode.NXDOMAIN, source=entry)
        if kind == RecordType.SRV:
            return self._srv(name, entry, zone, pairs)
        return LookupResult(zone, answer=self._address_records(name, addresses, kind), source=entry)

    def _srv(self, name: bytes, entry: ServiceEntry, zone: bytes, pairs: list[Pair]) -> LookupResult:
        """Returns the SRV records of the pairs that have a port; all weights together are about 100."""
        weight = max(1, 100 // len(pairs)) if pairs else 0
        service = self._name_of(entry, zone)
        answer: dict[tuple[str, int], Record] = {}
        additional: dict[tuple[str, str], Record] = {}
        for pair in pairs:
            if pair.port == NO_PORT:
                continue
            host = pair.host.encode()
            target = bytes((len(host),)) + host + service if host else service
            rdata = b"\0\0" + weight.to_bytes(2, "big") + pair.port.to_bytes(2, "big") + target
            answer.setdefault((pair.host, pair.port), self._record(name, RecordType.SRV, rdata))
            if (pair.host, pair.address) not in additional:
                additional[pair.host, pair.address] = self._address_record(target, pair.address)
        return LookupResult(zone, answer=tuple(answer.values()), additional=tuple(additional.values()), source=entry)

    def _external(self, name: bytes, entry: ServiceEntry, zone: bytes) -> LookupResult:
        """Returns the CNAME of an ExternalName Service; NXDOMAIN if its target is an address or invalid."""
        text = entry.names.external_name
        try:
            target = domain_names.from_text(text)
        except domain_names.BadName:
            return LookupResult(zone, Rcode.NXDOMAIN, source=entry)
        if parse_address(text) is not None:
            return LookupResult(zone, Rcode.NXDOMAIN, source=entry)
        return LookupResult(
            zone, answer=(self._record(name, RecordType.CNAME, target),), source=entry, alias=target.lower()
        )

    def _reverse(self, name: bytes, zone: bytes, kind: int) -> LookupResult | None:
        if name == zone:
            return self._apex(zone, kind)
        address = address_of(domain_names.labels_of(name[: len(name) - len(zone)] + b"\0"), zone)
        if address is None:
            return None
        entry = self.index.at_cluster_ip(address)
        if entry is not None:
            targets = [self._name_of(entry, self._primary)]
        else:
            targets = list(dict.fromkeys(self._endpoint_names(address)))
        if not targets:
            return None
        return LookupResult(
            zone,
            answer=tuple(self._record(name, RecordType.PTR, one) for one in targets) if kind == RecordType.PTR else (),
        )

    def _endpoint_names(self, address: str) -> Iterator[bytes]:
        for entry in self.index.at_endpoint(address):
            service = self._name_of(entry, self._primary)
            for group in entry.names.groups:
                for host, other in group.endpoints():
                    if other == address:
                        yield bytes((len(host),)) + host.encode() + service

    def _name_of(self, entry: ServiceEntry, zone: bytes) -> bytes:
        key = entry.names
        return domain_names.encode([key.name.encode(), key.namespace.encode(), b"svc"])[:-1] + zone

    def _record(self, owner: bytes, kind: RecordType, rdata: bytes) -> Record:
        return Record(owner, kind, self._settings.ttl, rdata)

    def _address_record(self, owner: bytes, address: str) -> Record:
        return self._record(owner, FAMILY_KIND[family_of(address)], pack_address(address))

    def _address_records(self, owner: bytes, addresses: tuple[str, ...], kind: int) -> tuple[Record, ...]:
        return tuple(
            self._address_record(owner, address) for address in addresses if FAMILY_KIND[family_of(address)] == kind
        )

    def soa(self, zone: bytes, serial: int) -> Record:
        """Returns the SOA of a zone. serial: Unix time of the last change."""
        ns = domain_names.encode([b"ns", b"dns"])[:-1] + zone
        numbers = (serial & 0xFFFFFFFF, 7200, 1800, 86400, self._settings.ttl)
        rdata = ns + b"\x0ahostmaster" + zone + b"".join(number.to_bytes(4, "big") for number in numbers)
        return self._record(zone, RecordType.SOA, rdata)


def has_name(port: NamedPort) -> bool:
    """Returns whether a port has an SRV name: with its underscore it must fit in a label."""
    return 0 < len(port.name) < domain_names.LONGEST_LABEL


def _pairs_at(entry: ServiceEntry, below: list[bytes]) -> Iterator[Pair]:
    """Yields the pairs of the name that has these labels below a Service."""
    if not below:
        yield from _pairs(entry, None)
    elif len(below) == 1:
        host = below[0].decode("latin-1")
        for address, group in entry.endpoints_named(host):
            for port in _matching(group.ports, None):
                yield Pair(host, address, port)
    elif len(below) == _LABELS_OF_A_PORT and all(label.startswith(b"_") for label in below):
        yield from _pairs(entry, (below[0][1:].decode("latin-1"), below[1][1:].decode("latin-1")))


def _pairs(entry: ServiceEntry, wanted: tuple[str, str] | None) -> Iterator[Pair]:
    """Yields the pairs of a Service. wanted: name and protocol of the port, None for all ports."""
    if not entry.names.headless:
        for port in _matching(entry.names.ports, wanted):
            for address in entry.names.cluster_ips:
                yield Pair("", address, port)
        return
    for group in entry.names.groups:
        ports = _matching(group.ports, wanted)
        if ports:
            for host, address in group.endpoints():
                for port in ports:
                    yield Pair(host, address, port)


def _matching(ports: tuple[NamedPort, ...], wanted: tuple[str, str] | None) -> list[int]:
    """Returns the numbers of the ports that match; NO_PORT if all are wanted but none exists."""
    if wanted is None:
        return [port.port for port in ports] or [NO_PORT]
    return [port.port for port in ports if (port.name, port.protocol) == wanted and has_name(port)]
