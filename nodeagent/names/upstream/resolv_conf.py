"""Parses resolv.conf, as resolv.conf(5) describes it, and selects the servers. Pure."""

from dataclasses import dataclass

from nodeagent.names.upstream.upstream_address import Server, canonical

STUBS = frozenset({"127.0.0.53", "127.0.0.54"})
"""Addresses at which systemd-resolved listens on the node (systemd-resolved.service(8))."""
MOST = 8


@dataclass(frozen=True, slots=True)
class ResolvConf:
    """The contents of a resolv.conf. nameservers: at most `MOST`, in order. search: domains without their trailing dot, in order."""

    nameservers: tuple[Server, ...] = ()
    search: tuple[str, ...] = ()


def parse_resolv_conf(text: str) -> ResolvConf:
    """Returns the contents. Unknown lines are ignored; of several search or domain lines the last one counts."""
    servers: dict[Server, None] = {}
    search: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.startswith(("#", ";")):
            continue
        match line.split():
            case ["nameserver", text_address, *_] if address := canonical(text_address):
                servers.setdefault(Server(address))
            case ["domain", domain, *_]:
                search = (domain.rstrip("."),)
            case ["search", *domains]:
                search = tuple(domain.rstrip(".") for domain in domains)
    return ResolvConf(tuple(servers)[:MOST], tuple(domain for domain in search if domain))


def servers_behind(conf: ResolvConf, behind: ResolvConf) -> tuple[Server, ...]:
    """Returns the servers that systemd-resolved itself asks, if `conf` names only its stub; else those of `conf`.

    behind: the file that systemd-resolved writes for programs that do not want its stub. Without it the stub is used,
    which we can reach because we share the node's network namespace.
    """
    through_stub = conf.nameservers and all(server.address in STUBS for server in conf.nameservers)
    real = tuple(server for server in behind.nameservers if server.address not in STUBS)
    return real if through_stub and real else conf.nameservers
