"""Which addresses a Service exposes on this node, in each family (docs/semantics.md §2, §6)."""

from collections.abc import Iterable

from msgspec import Struct

from nodeagent.model.addresses import Family, family_of, parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service, ServiceSpec, is_of_other_proxy
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.ordinary_addresses import is_ordinary_ipv4

_BROADCAST = "broadcast"
_LINK_LOCAL = "link-local"
_LOOPBACK = "loopback"
_MULTICAST = "multicast"
_FIRST_MULTICAST, _LAST_MULTICAST = 224, 239
"""First octets of 224.0.0.0/4."""
_UNSPECIFIED = "unspecified"


class Exposure(Struct, frozen=True, gc=False):
    """The addresses of one service in one family: canonical, without duplicates, in the order of the object."""

    cluster_ip: str
    external_ips: tuple[str, ...] = ()
    load_balancer_ips: tuple[str, ...] = ()


def is_proxied(service: Service) -> bool:
    """Returns whether this node proxies a Service: it has a cluster IP, is neither headless nor ExternalName, and is not
    labelled for another proxy."""
    spec = service.spec
    return not is_of_other_proxy(service) and spec.cluster_ip not in (None, "", "None") and spec.type != "ExternalName"


def exposures(service: Service, key: ObjectKey, context: Context, problems: list[Problem]) -> dict[Family, Exposure]:
    """Returns the exposed addresses by family. A family without a cluster IP is absent, whatever other addresses it has."""
    spec = service.spec
    subject = f"Service {key}"
    cluster_ips = _cluster_ips(spec, context, subject, problems)
    external = spec.external_ips if spec.external_ips and context.external_ips_enabled else ()
    external_ips = _usable_addresses(external, "external IP", subject, problems) if external else []
    status = service.status
    ingress = status.load_balancer.ingress if status and status.load_balancer else None
    virtual = [entry.ip for entry in ingress or () if entry.ip and entry.ip_mode in (None, "VIP")]
    load_balancer_ips = _usable_addresses(virtual, "load-balancer IP", subject, problems) if virtual else []
    return {
        family: Exposure(
            cluster_ip,
            tuple([address for address in external_ips if family_of(address) is family]),
            tuple([address for address in load_balancer_ips if family_of(address) is family]),
        )
        for family, cluster_ip in cluster_ips.items()
    }


def special_use(address: str) -> str | None:
    """Returns in one word why a canonical address must not be an endpoint or be captured; None for ordinary addresses.

    The API server refuses these as endpoints and as external IPs (`ValidateNonSpecialIP`); capturing one of them
    would cut the node off from itself, its neighbours or its metadata server.
    """
    return _special_ipv6(address) if ":" in address else _special_ipv4(address)


def _special_ipv4(address: str) -> str | None:
    if address.startswith("127."):
        return _LOOPBACK
    if address.startswith("169.254."):
        return _LINK_LOCAL
    if _FIRST_MULTICAST <= int(address.partition(".")[0]) <= _LAST_MULTICAST:
        return _MULTICAST
    return {"0.0.0.0": _UNSPECIFIED, "255.255.255.255": _BROADCAST}.get(address)  # noqa: S104 - compared, not bound


def _special_ipv6(address: str) -> str | None:
    group = address.partition(":")[0].rjust(4, "0")
    if group[:2] == "fe" and group[2] in "89ab":
        return _LINK_LOCAL
    if group[:2] == "ff":
        return _MULTICAST
    return {"::": _UNSPECIFIED, "::1": _LOOPBACK}.get(address)


def _cluster_ips(spec: ServiceSpec, context: Context, subject: str, problems: list[Problem]) -> dict[Family, str]:
    """Returns the cluster IP of each served family, in the order of the context's families.

    `ipFamilies[i]` is the family of `clusterIPs[i]`. The API server fills in both. A manifest may leave out `ipFamilies`: then
    the first address of each family counts; or `clusterIPs`: then it is `clusterIP` alone.
    """
    found: dict[Family, str] = {}
    texts = spec.cluster_ips or (spec.cluster_ip or "",)
    declared = spec.ip_families or ()
    if not declared and spec.cluster_ip:
        texts = tuple(dict.fromkeys((spec.cluster_ip, *texts)))
    for index, text in enumerate(texts):
        if declared and index >= len(declared):
            break
        ordinary = is_ordinary_ipv4(text)
        address = text if ordinary else parse_address(text)
        if address is None:
            problems.append(Problem(subject, "InvalidAddress", f"cluster IP {text!r} is not an IP address: ignored"))
            continue
        family = family_of(address)
        if declared and declared[index] != family.value:
            detail = f"cluster IP {text} is declared to be {declared[index]}: ignored"
            problems.append(Problem(subject, "InvalidAddress", detail))
        elif not ordinary and (use := special_use(address)) and use != _LINK_LOCAL:
            problems.append(Problem(subject, "InvalidAddress", f"cluster IP {text} is {use}: not captured"))
        else:
            found.setdefault(family, address)
    return {family: found[family] for family in context.families if family in found}


def _usable_addresses(texts: Iterable[str], what: str, subject: str, problems: list[Problem]) -> list[str]:
    usable: dict[str, None] = {}
    for text in texts:
        address = parse_address(text)
        if address is None:
            if text.strip():
                problems.append(Problem(subject, "InvalidAddress", f"{what} {text!r} is not an IP address: ignored"))
        elif use := special_use(address):
            problems.append(Problem(subject, "InvalidAddress", f"{what} {text} is {use}: not captured"))
        else:
            usable[address] = None
    return list(usable)
