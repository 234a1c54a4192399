"""Files that live as long as the machine runs."""

DNS_SOCKETS = ".sock"
DNS_PLACES = "dns-*.listen"
"""Beside the socket of a DNS process: where it answers."""


def dns_socket(network_namespace: int) -> str:
    """Where the DNS process of a network namespace, given by its inode, is found."""
    return f"/run/nodeagent/dns-{network_namespace}.sock"


def left_in(network_namespace: int) -> tuple[str, ...]:
    """What an agent of a network namespace and its DNS process leave when they are killed, by default paths."""
    names = dns_socket(network_namespace)
    return names, names.removesuffix(".sock") + ".listen", f"/run/nodeagent/agent-{network_namespace}.sock"
