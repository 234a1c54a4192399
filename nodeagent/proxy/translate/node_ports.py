"""Decides at which addresses of this node its node ports answer.

docs/semantics.md 41, docs/decisions/0012-nodeport-addresses.md.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TypeVar

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.frontend import FrontendKind, ServiceState
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.cidrs import Network, merge_cidrs, network_family, parse_cidrs
from nodeagent.proxy.translate.context import Context

_SUBJECT = "configuration nodePortAddresses"
_NO_ADDRESS = "NoNodeAddress"
_EVERYTHING: dict[Family, Network] = {Family.IPV4: IPv4Network("0.0.0.0/0"), Family.IPV6: IPv6Network("::/0")}
_N = TypeVar("_N", IPv4Network, IPv6Network)


def node_port_cidrs(texts: Sequence[str], context: Context, problems: list[Problem]) -> tuple[str, ...]:
    """Returns the destinations at which node ports answer, never loopback; merged and sorted.

    texts: CIDRs, or ``primary`` or ``all`` alone; empty is ``primary``.
    ``primary``: the node's addresses; a family without one gets no destination. CIDRs: these; a family that is not mentioned
    gets all its addresses, as with kube-proxy. A list without a valid CIDR gives no destinations.
    """
    entries = [text.strip() for text in texts if text.strip()]
    if not entries or set(entries) == {"primary"}:
        return _primary_addresses(context, problems)
    given = parse_cidrs([entry for entry in entries if entry != "all"], _SUBJECT, "entry", problems)
    if not given and "all" not in entries:
        return ()
    chosen: list[Network] = []
    for family in context.families:
        own = [] if "all" in entries else [network for network in given if network_family(network) is family]
        chosen += _exclude_loopback(own or [_EVERYTHING[family]], problems)
    return merge_cidrs(chosen)


def has_node_port(state: ServiceState) -> bool:
    """Returns whether a Service is reached at a node port."""
    return FrontendKind.NODE_PORT in [one.kind for one in state.frontends]


def relevant_problems(problems: tuple[Problem, ...], *, node_ports: bool) -> tuple[Problem, ...]:
    """Returns the problems of the node that concern a Service. node_ports: whether a Service has one; only then it matters that
    the node has no address for them."""
    if node_ports:
        return problems
    return tuple(one for one in problems if one.reason != _NO_ADDRESS)


def _primary_addresses(context: Context, problems: list[Problem]) -> tuple[str, ...]:
    """Returns the node's addresses. One family without an address is normal; a node without any address is a problem."""
    known = {family_of(address): address for address in reversed(context.node_addresses)}
    for family in context.families:
        if not known:
            detail = f"the node has no {family.value} address: node ports do not answer on {family.value}"
            problems.append(Problem(_SUBJECT, _NO_ADDRESS, detail))
    return merge_cidrs([ip_network(address) for family, address in known.items() if family in context.families])


def _exclude_loopback(networks: Iterable[Network], problems: list[Problem]) -> list[Network]:
    served: list[Network] = []
    for network in networks:
        parts = list(_without_loopback(network))
        if not parts:
            detail = f"{network} is loopback: node ports are never served there"
            problems.append(Problem(_SUBJECT, "LoopbackNodePort", detail))
        served += parts
    return served


def _without_loopback(network: Network) -> Iterable[Network]:
    if isinstance(network, IPv4Network):
        return _excluding(network, IPv4Network("127.0.0.0/8"))
    return _excluding(network, IPv6Network("::1/128"))


def _excluding(network: _N, hole: _N) -> Iterable[_N]:
    if network.subnet_of(hole):
        return ()
    return network.address_exclude(hole) if hole.subnet_of(network) else (network,)
