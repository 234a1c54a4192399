"""Kernel settings that balancing needs: which they are (pure), and a best-effort, never fatal way to set them.

What is left unchanged, and why. ``route_localnet``: node ports are not served on 127.0.0.0/8. ``rp_filter``: replies keep the endpoint's
address until after routing (the source is translated back in the input and postrouting hooks), so the reverse path is the real one.
``arp_ignore``, ``arp_announce``: see interface.py. ``bridge-nf-call-iptables``: needed by bridge networks whose pods answer each other
directly, but it changes what every bridge of the node does; that is a matter of the program that sets up the pod network.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem

_IPV6_FORWARDING = "proc/sys/net/ipv6/conf/all/forwarding"
_CONNTRACK = "proc/sys/net/netfilter/nf_conntrack_"
_HASH_SIZE = "sys/module/nf_conntrack/parameters/hashsize"
_CONNTRACK_LIMIT = 1 << 20
_RTF_ADDRCONF = 0x00040000
_ROUTE_COLUMNS = 10


@dataclass(frozen=True, slots=True)
class ConntrackOptions:
    """KubeProxyConfiguration's ``conntrack``; times in seconds, 0 (or False) leaves the system's value."""

    max_per_core: int = 32768
    min: int = 131072
    tcp_established_seconds: int = 86400
    tcp_close_wait_seconds: int = 3600
    tcp_be_liberal: bool = False
    udp_seconds: int = 0
    udp_stream_seconds: int = 0


class Sysctl(NamedTuple):
    """A file that shall hold a number. `raise_only`: more than `value` is fine as well. `path` is relative to ``/``."""

    path: str
    value: int
    why: str
    raise_only: bool = False

    @property
    def name(self) -> str:
        """The name as sysctl(8) spells it; the path for a file that is not below /proc/sys."""
        prefix = "proc/sys/"
        return self.path.removeprefix(prefix).replace("/", ".") if self.path.startswith(prefix) else f"/{self.path}"

    def met_by(self, found: int) -> bool:
        """Returns whether `found` needs no change."""
        return found >= self.value if self.raise_only else found == self.value


class SysctlOutcome(Enum):
    """The result for a setting."""

    UNCHANGED = "unchanged"
    WRITTEN = "written"
    FAILED = "failed"


class SysctlResult(NamedTuple):
    """The outcome of setting one sysctl. `found`: the previous value, None if unreadable. `problem`: only of a failure."""

    sysctl: Sysctl
    outcome: SysctlOutcome
    found: int | None
    problem: Problem | None = None


def required_sysctls(
    families: Collection[Family], *, conntrack: ConntrackOptions | None = None, cores: int = 1
) -> tuple[Sysctl, ...]:
    """Returns what this node needs, in the order to set it. `conntrack` None: nothing of connection tracking is touched."""
    required = []
    if Family.IPV4 in families:
        required.append(Sysctl("proc/sys/net/ipv4/ip_forward", 1, "packets to endpoints are forwarded"))
    if Family.IPV6 in families:
        required.append(Sysctl(_IPV6_FORWARDING, 1, "IPv6 packets to endpoints are forwarded"))
    if conntrack is not None:
        required += _conntrack_sysctls(conntrack, cores)
    return tuple(required)


def conntrack_max(options: ConntrackOptions, cores: int) -> int | None:
    """Returns how many entries the connection table shall hold; None: leave it. The formula is kube-proxy's (cmd/kube-proxy/app)."""
    if options.max_per_core <= 0:
        return None
    return min(_CONNTRACK_LIMIT, max(options.min, options.max_per_core * cores))


def _conntrack_sysctls(options: ConntrackOptions, cores: int) -> Iterator[Sysctl]:
    """Yields the sysctls of connection tracking. Unlike with kube-proxy, a table that is already larger is not made smaller."""
    if (entries := conntrack_max(options, cores)) is not None:
        why = "a full table drops new connections"
        yield Sysctl(f"{_CONNTRACK}max", entries, why, raise_only=True)
        yield Sysctl(_HASH_SIZE, entries // 4, "chains of more than four entries are slow", raise_only=True)
    for name, seconds, why in (
        ("tcp_timeout_established", options.tcp_established_seconds, "idle TCP connections are forgotten after it"),
        (
            "tcp_timeout_close_wait",
            options.tcp_close_wait_seconds,
            "half-closed TCP connections are forgotten after it",
        ),
        ("udp_timeout", options.udp_seconds, "UDP flows without an answer are forgotten after it"),
        ("udp_timeout_stream", options.udp_stream_seconds, "UDP flows are forgotten after it"),
    ):
        if seconds > 0:
            yield Sysctl(f"{_CONNTRACK}{name}", seconds, why)
    if options.tcp_be_liberal:
        yield Sysctl(f"{_CONNTRACK}tcp_be_liberal", 1, "packets outside the TCP window are translated all the same")


def check_sysctls(required: Iterable[Sysctl], *, root: Path = Path("/")) -> list[SysctlResult]:
    """Returns a failure for each setting that differs; writes nothing."""
    return [
        _failed(sysctl, found, f"it is {found}; {_advice(sysctl)}")
        for sysctl in required
        if (found := _read(sysctl, root)) is not None and not sysctl.met_by(found)
    ]


def still_missed(sysctl: Sysctl, before: Problem | None, *, root: Path = Path("/")) -> Problem | None:
    """Returns the present problem of a setting. before: its previous one, which says more, and is kept if the setting cannot be read."""
    found = _read(sysctl, root)
    if found is None or (before is not None and not sysctl.met_by(found)):
        return before
    return next((one.problem for one in check_sysctls((sysctl,), root=root)), None)


def apply_sysctls(required: Iterable[Sysctl], *, root: Path = Path("/")) -> list[SysctlResult]:
    """Writes what differs; returns one result for each setting, and for each `accept_ra` that IPv6 forwarding required.

    Blocks for a few milliseconds at most if nothing differs; writing forwarding waits for the kernel's rtnl lock.
    """
    results: list[SysctlResult] = []
    for sysctl in required:
        if sysctl.path == _IPV6_FORWARDING:
            results += _forward_ipv6(sysctl, root)
        else:
            results.append(_apply(sysctl, root))
    return results


def _forward_ipv6(forwarding: Sysctl, root: Path) -> list[SysctlResult]:
    """Turns IPv6 forwarding on. The kernel then ignores router advertisements and deletes the default routes learned
    from them (net/ipv6/addrconf.c, addrconf_forward_change; route.c, rt6_purge_dflt_routers), unless accept_ra is 2.

    So interfaces that may depend on them are set to 2 first: hardware ones, and those that have learned routes. Others,
    above all the node's ends of pods' veth pairs, are not: a pod could make itself the node's router.
    """
    if _read(forwarding, root) == forwarding.value:
        return [_apply(forwarding, root)]
    guards = [
        _apply(Sysctl(f"proc/sys/net/ipv6/conf/{name}/accept_ra", 2, "its default route is learned"), root)
        for name in sorted(_interfaces_with_learned_routes(root) | _hardware_interfaces(root))
        if _accepts_advertisements(name, root)
    ]
    if all(guard.problem is None for guard in guards):
        return [*guards, _apply(forwarding, root)]
    detail = "left as it is, because turning it on would make the node lose its learned IPv6 default route"
    problem = Problem(f"sysctl {forwarding.name}", "SysctlNotSet", detail)
    return [*guards, SysctlResult(forwarding, SysctlOutcome.FAILED, None, problem)]


def _accepts_advertisements(name: str, root: Path) -> bool:
    settings = {"accept_ra": 1, "forwarding": 0}
    return all(_read(Sysctl(f"proc/sys/net/ipv6/conf/{name}/{key}", 0, ""), root) == v for key, v in settings.items())


def _interfaces_with_learned_routes(root: Path) -> set[str]:
    """Returns interfaces from /proc/net/ipv6_route: ten columns, the last two the flags in hexadecimal and the interface."""
    try:
        lines = (root / "proc/thread-self/net/ipv6_route").read_text().splitlines()
    except OSError:
        return set()
    columns = [line.split() for line in lines]
    return {c[9] for c in columns if len(c) == _ROUTE_COLUMNS and int(c[8], 16) & _RTF_ADDRCONF and c[9] != "lo"}


def _hardware_interfaces(root: Path) -> set[str]:
    return {path.parent.name for path in (root / "sys/class/net").glob("*/device")}


def _read(sysctl: Sysctl, root: Path) -> int | None:
    try:
        return int((root / sysctl.path).read_text())
    except (OSError, ValueError):
        return None


def _apply(sysctl: Sysctl, root: Path) -> SysctlResult:
    path = root / sysctl.path
    try:
        found = int(path.read_text())
    except FileNotFoundError:
        if sysctl.path == _HASH_SIZE:
            # A kernel with conntrack built in, or a sandbox, does not have this file. Without it, lookups are only slower.
            return SysctlResult(sysctl, SysctlOutcome.UNCHANGED, None)
        return _failed(sysctl, None, f"/{sysctl.path} is missing: {_missing_part(sysctl)}")
    except (OSError, ValueError) as error:
        return _failed(sysctl, None, f"it cannot be read: {error}")
    if sysctl.met_by(found):
        return SysctlResult(sysctl, SysctlOutcome.UNCHANGED, found)
    try:
        path.write_text(f"{sysctl.value}\n")
    except OSError as error:
        return _failed(sysctl, found, f"it is {found} and cannot be written ({error.strerror}); {_advice(sysctl)}")
    return SysctlResult(sysctl, SysctlOutcome.WRITTEN, found)


def _failed(sysctl: Sysctl, found: int | None, detail: str) -> SysctlResult:
    problem = Problem(f"sysctl {sysctl.name}", "SysctlNotSet", f"should be {sysctl.value} ({sysctl.why}); {detail}")
    return SysctlResult(sysctl, SysctlOutcome.FAILED, found, problem)


def _missing_part(sysctl: Sysctl) -> str:
    if "/ipv6/" in sysctl.path:
        return "the kernel runs without IPv6; enable it or configure IPv4 only"
    if "nf_conntrack" in sysctl.path:
        return "load the module nf_conntrack before the agent starts"
    return "the kernel does not have it"


def _advice(sysctl: Sysctl) -> str:
    if sysctl.path == _HASH_SIZE:
        return f"on the host, run: echo {sysctl.value} > /{_HASH_SIZE}"
    return f"on the host, run: sysctl -w {sysctl.name}={sysctl.value}"
