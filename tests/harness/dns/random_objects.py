"""Random Services, EndpointSlices and namespaces as an API server has them, and random questions about them."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

from tests.harness.dns.zone_listing import ZONE, ZoneListing, dashed

Document = dict[str, Any]
Port = tuple[str, str, int | None]
"""Name, protocol, number."""
NAMESPACES = (
    "default",
    "svc",
    "pod",
    "dns-version",
    "shop",
    "team-42",
    "cluster",
    "local",
    "ns",
    "dns",
    "10-244-1-5",
    "n" * 63,
)
SERVICES = (
    "web",
    "db",
    "svc",
    "pod",
    "dns",
    "kube-dns",
    "10-244-1-31",
    "fd00--5",
    "tcp",
    "a",
    "s3",
    "1web",
    "x--y",
    "s" * 63,
)
HOSTS = ("h0", "h1", "same", "tcp", "svc", "pod", "42", "10-244-1-5", "fd00-10-244--5", "web", "h" * 63)
PORTS = ("http", "https", "dns", "dns-tcp", "tcp", "sig", "9a", "p" * 62, "p" * 63)
PROTOCOLS = ("TCP", "UDP", "SCTP")
TARGETS = (
    "www.example.com",
    "nx.example.com.",
    "192.0.2.7",
    "cluster.local",
    "ns.dns.cluster.local",
    "Missing.svc.cluster.local",
)
KINDS = ("ClusterIP", "ClusterIP", "NodePort", "headless", "headless", "headless", "ExternalName")
TYPES = ("A", "AAAA", "SRV") * 3 + ("TXT", "MX", "CNAME", "NS", "SOA", "PTR", "ANY", "HTTPS", "TYPE65280", "DS")
POD_LABELS = ("1-2-3-4", "256-1-1-1", "1-2-3", "1--2", "fd00--5", "1-2-3-4-5-6-7-8", "1--2--3", "nopod", "1-2-3-04")
CONDITIONS: tuple[Document | None, ...] = (
    None,
    {"ready": True},
    {"ready": True, "serving": True, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False},
    {"serving": False},
)
LARGE = 60
"""Endpoints of a large slice: more than an answer holds by UDP."""
HYPHEN_AT_THE_END = 64
"""Zero bits with which an IPv6 address is written with colons at its end."""


def random_objects(random: Random, services: int) -> list[Document]:
    """Objects of about so many Services."""
    namespaces = sorted({"kube-system", *random.sample(NAMESPACES, random.randint(1, 4))})
    dns: list[Port] = [("dns", "UDP", 53), ("dns-tcp", "TCP", 53)]
    documents: list[Document] = [{"kind": "Namespace", "metadata": {"name": name}} for name in namespaces]
    documents.append(_service(("kube-system", "kube-dns"), ["10.96.0.10"], dns, "ClusterIP"))
    keys = {("kube-system", "kube-dns")}
    free = [str(IPv4Address(f"10.96.1.{last}")) for last in range(1, 255)]
    for _ in range(services):
        key = random.choice(namespaces), random.choice(SERVICES)
        if key in keys:
            continue
        kind = random.choice(KINDS)
        ports = _ports(random, needed=kind in ("ClusterIP", "NodePort"))
        if kind == "ExternalName":
            near = "{1}.{0}.svc.cluster.local".format(*random.choice(sorted(keys | {key})))
            spec = {"type": kind, "externalName": random.choice((*TARGETS, near, near))}
            documents.append({"kind": "Service", "metadata": _meta(*key), "spec": spec})
        else:
            four = free.pop()
            six = str(IPv6Address("fd00:10:96::") + int(IPv4Address(four)) % 256)
            ips = random.choice(([four], [six], [four, six], [six, four])) if kind != "headless" else ["None"]
            documents.append(_service(key, ips, ports, "ClusterIP" if kind == "headless" else kind))
            for number in range(random.choice((0, 1, 1, 2, 3))):
                documents.append(_slice(random, key, number, ports))
        keys.add(key)
    return documents


def _ports(random: Random, *, needed: bool) -> list[Port]:
    names = random.sample(PORTS, random.choice((0, 1, 1, 2, 3)))
    if (needed and not names) or (len(names) == 1 and random.random() < 0.5):
        names = [""]
    return [(name, random.choice(PROTOCOLS), random.randint(1, 65535)) for name in names]


def _meta(namespace: str, name: str) -> Document:
    return {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}", "resourceVersion": "1"}


def _port(port: Port) -> Document:
    name, protocol, number = port
    return {"name": name, "protocol": protocol, **({} if number is None else {"port": number})}


def _service(key: tuple[str, str], ips: list[str], ports: list[Port], kind: str) -> Document:
    spec = {"type": kind, "clusterIP": ips[0], "clusterIPs": ips, "ports": [_port(port) for port in ports]}
    return {"kind": "Service", "metadata": _meta(*key), "spec": spec}


def _slice(random: Random, key: tuple[str, str], number: int, ports: list[Port]) -> Document:
    six = random.random() < 0.35
    size = LARGE if random.random() < 0.05 else random.randint(0, 5)
    if random.random() < 0.3:
        ports = [(name, protocol, random.choice((None, 8080, 8081))) for name, protocol, _ in ports]
    endpoints = []
    for _ in range(size):
        endpoint: Document = {
            "addresses": sorted({_address(random, six=six) for _ in range(random.choice((1, 1, 1, 2)))})
        }
        if random.random() < 0.4:
            endpoint["hostname"] = random.choice(HOSTS)
        conditions = random.choice(CONDITIONS)
        if conditions is not None:
            endpoint["conditions"] = conditions
        endpoints.append(endpoint)
    labels = {"kubernetes.io/service-name": key[1]}
    return {
        "kind": "EndpointSlice",
        "metadata": {**_meta(key[0], f"{key[1][:50]}-{number}"), "labels": labels},
        "addressType": "IPv6" if six else "IPv4",
        "endpoints": endpoints,
        "ports": [_port(port) for port in ports],
    }


def _address(random: Random, *, six: bool) -> str:
    if not six:
        return f"10.244.{random.randint(0, 1)}.{random.randint(1, 40)}"
    low = random.choice((random.randint(1, 9), random.randint(1, 4) << HYPHEN_AT_THE_END, random.getrandbits(64)))
    return str(IPv6Address("fd00:10:244::") + low)


def random_questions(random: Random, listing: ZoneListing, count: int) -> Iterator[tuple[str, str]]:
    """Names and types: names that are there and names beside, above and below them, in any letter case."""
    listed = sorted(listing.names)
    labels = sorted({label for name in listed for label in name.split(".")[:-1]} | set(HOSTS) | {"*", "_", "x"})
    namespaces = sorted(listing.namespaces)
    while count:
        name = random.choice(listed)
        change = random.randrange(8)
        first, _, rest = name.partition(".")
        if change == 0:
            name = f"{random.choice(labels)}.{rest}"
        elif change == 1:
            name = rest
        elif change == 2:
            name = f"{random.choice(labels)}.{name}"
        elif change == 3:
            _, _, rest = rest.partition(".")
            name = f"{first}.{random.choice(labels)}.{rest}"
        elif change == 4:
            label = random.choice((*POD_LABELS, dashed(_address(random, six=random.random() < 0.5))))
            name = f"{label}.{random.choice((*namespaces, 'nowhere'))}.pod.{ZONE}"
        if random.random() < 0.2:
            name = "".join(random.choice((letter.upper(), letter)) for letter in name)
        if len(name) <= 253 and all(0 < len(label) < 64 for label in name.split(".")[:-1]) and name.strip("."):
            count -= 1
            yield name, random.choice(TYPES)
