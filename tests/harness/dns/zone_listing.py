"""The cluster's zones written out as a list of all their names, and questions answered from the list by the rules of the DNS
alone: a second reading of what names mean, slow and without any code of the server's.

Not listed are pod names, which stand for any address.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NamedTuple

Document = Mapping[str, Any]
Data = tuple[str, str]
"""Type and data, as text in lower case."""
ZONE = "cluster.local."
REVERSE = ("in-addr.arpa.", "ip6.arpa.")
SERVER = ("kube-system", "kube-dns")
LONGEST_PORT_NAME = 62
LONGEST_CHAIN = 16
FOLLOWED_BY_NOTHING = ("CNAME", "ANY")


class Expected(NamedTuple):
    """What a question gets: rcode, answer and additional records as (owner, type, data), and the zone of the SOA in the
    authority section, empty for none."""

    rcode: str
    answer: frozenset[tuple[str, str, str]] = frozenset()
    additional: frozenset[tuple[str, str, str]] = frozenset()
    soa: str = ""


@dataclass
class Node:
    """What stands at a name. also: records that come along with its SRV or NS records."""

    data: set[Data] = field(default_factory=set)
    also: set[tuple[str, str, str]] = field(default_factory=set)


class Pair(NamedTuple):
    """An address and a port below a name; port: None for one without a number."""

    target: str
    address: str
    port: int | None


class ZoneListing:
    """All names that the objects make."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = list(documents)
        self.names: dict[str, Node] = defaultdict(Node)
        self._pairs: dict[str, list[Pair]] = defaultdict(list)
        self._cluster_ips: dict[str, str] = {}
        self._endpoints: dict[str, set[str]] = defaultdict(set)
        self.namespaces = {one["metadata"]["name"] for one in self._documents if one["kind"] == "Namespace"}
        for name in ("", "dns.", "svc.", "pod."):
            self.names[name + ZONE]
        self.names["dns-version." + ZONE].data.add(("TXT", '"1.1.0"'))
        for namespace in self.namespaces:
            self.names[f"{namespace}.svc.{ZONE}"]
            self.names[f"{namespace}.pod.{ZONE}"]
        for one in self._documents:
            if one["kind"] == "Service":
                self._list_service(one)
        self._list_reverse()

    def _list_service(self, service: Document) -> None:
        meta, spec = service["metadata"], service["spec"]
        base = f"{meta['name']}.{meta['namespace']}.svc.{ZONE}"
        if spec["type"] == "ExternalName":
            if not _is_address(spec["externalName"]):
                self.names[base].data.add(("CNAME", spec["externalName"].lower().rstrip(".") + "."))
            return
        ready = list(self._ready_endpoints(meta["namespace"], meta["name"]))
        for host, address, ports in ready:
            self._list(f"{host}.{base}", [Pair(f"{host}.{base}", address, port) for _, _, port in ports])
            self._endpoints[address].add(f"{host}.{base}")
        if spec["clusterIPs"] == ["None"]:
            pairs = [
                (Pair(f"{host}.{base}", address, port[2]), port) for host, address, ports in ready for port in ports
            ]
        else:
            pairs = [(Pair(base, ip, port[2]), port) for port in _ports(spec) for ip in spec["clusterIPs"]]
            self._cluster_ips.update(dict.fromkeys(spec["clusterIPs"], base))
            if (meta["namespace"], meta["name"]) == SERVER:
                self._list_server(base, spec["clusterIPs"])
        self._list(base, [pair for pair, _ in pairs])
        for name, protocol in {port[:2] for _, port in pairs}:
            if name and len(name) <= LONGEST_PORT_NAME:
                self._list(
                    f"_{name}._{protocol}.{base}", [pair for pair, port in pairs if port[:2] == (name, protocol)]
                )

    def _list(self, name: str, pairs: list[Pair]) -> None:
        """Addresses and SRV records of a name; called again for a name, pairs are added to those it has."""
        if not pairs:
            return
        node = self.names[name.lower()]
        self._pairs[name.lower()] += pairs
        pairs = self._pairs[name.lower()]
        weight = max(1, 100 // len(pairs))
        node.data = {_address_data(pair.address) for pair in pairs}
        for pair in pairs:
            if pair.port is not None:
                node.data.add(("SRV", f"0 {weight} {pair.port} {pair.target.lower()}"))
                node.also.add((pair.target.lower(), *_address_data(pair.address)))

    def _list_server(self, base: str, cluster_ips: list[str]) -> None:
        for zone in (ZONE, *REVERSE):
            self.names[zone].data.add(("NS", base))
            self.names[zone].also = {(base, *_address_data(ip)) for ip in cluster_ips}
        self.names["ns.dns." + ZONE].data = {_address_data(ip) for ip in cluster_ips}

    def _ready_endpoints(
        self, namespace: str, name: str
    ) -> Iterator[tuple[str, str, list[tuple[str, str, int | None]]]]:
        """Name, address and ports of each."""
        for one in self._documents:
            labels = one["metadata"].get("labels") or {}
            if one["kind"] != "EndpointSlice" or one["metadata"]["namespace"] != namespace:
                continue
            if labels.get("kubernetes.io/service-name") != name:
                continue
            for endpoint in one["endpoints"]:
                if (endpoint.get("conditions") or {}).get("ready") is not False:
                    for address in endpoint["addresses"]:
                        yield (endpoint.get("hostname") or dashed(address)), address, list(_ports(one))

    def _list_reverse(self) -> None:
        for zone in REVERSE:
            self.names[zone]
        for address, targets in (self._endpoints | {ip: {name} for ip, name in self._cluster_ips.items()}).items():
            pointer = ip_address(address).reverse_pointer + "."
            self.names[pointer].data = {("PTR", target.lower()) for target in targets}

    def exists(self, name: str) -> bool:
        """Whether there is anything at or below a name."""
        return name in self.names or any(other.endswith("." + name) for other in self.names)

    def ask(self, name: str, kind: str) -> Expected | None:
        """What a name (lower case) has of a type; None where it is for the resolver behind us, at once or at the end of
        a chain."""
        chain: set[tuple[str, str, str]] = set()
        start = name
        for _ in range(LONGEST_CHAIN + 1):
            zone = next((zone for zone in (ZONE, *REVERSE) if ("." + name).endswith("." + zone)), None)
            if zone is None or (zone in REVERSE and (chain or name not in self.names)):
                return None
            data = self._data_at(name)
            if data is None:
                return Expected("NOERROR" if self.exists(name) else "NXDOMAIN", frozenset(chain), soa=zone)
            found = {(name, *one) for one in data if one[0] == kind}
            alias = next((text for what, text in data if what == "CNAME"), None)
            if alias is not None and not found:
                chain.add((name, "CNAME", alias))
                if kind in FOLLOWED_BY_NOTHING:
                    return Expected("NOERROR", frozenset(chain))
                if alias == start or any(owner == alias for owner, _, _ in chain):
                    break
                name = alias
                continue
            if kind == "SOA" and name == zone:
                return Expected("NOERROR", frozenset(chain | {(zone, "SOA", "")}))
            also = self.names[name].also if found and kind in ("SRV", "NS") else ()
            return Expected("NOERROR", frozenset(chain | found), frozenset(also), "" if found else zone)
        return Expected("SERVFAIL", frozenset(chain))

    def _data_at(self, name: str) -> set[Data] | None:
        """None where nothing is."""
        if name in self.names:
            return self.names[name].data
        labels = name.removesuffix("." + ZONE).split(".")
        if name.endswith(".pod." + ZONE) and len(labels) == len(("address", "namespace", "pod")):
            address = labels[0]
            text = address.replace("-", "." if address.count("-") == 3 and "--" not in address else ":")
            if labels[1] in self.namespaces and _is_address(text):
                return {_address_data(text)}
        return None


def _ports(holder: Document) -> Iterator[tuple[str, str, int | None]]:
    """Name, protocol (lower case) and number of each port; one without a number where it has no number."""
    for port in holder.get("ports") or [{"name": "", "protocol": ""}]:
        yield port.get("name") or "", port["protocol"].lower(), port.get("port")


def dashed(address: str) -> str:
    """The label of an endpoint without a hostname."""
    label = address.replace(".", "-").replace(":", "-")
    return label + "0" if label.endswith("-") else label


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _address_data(text: str) -> Data:
    address: IPv4Address | IPv6Address = ip_address(text)
    return ("A" if address.version == 4 else "AAAA"), str(address)
