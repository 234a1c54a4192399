"""Paths of files that exist until the machine is rebooted."""

AGENT_SOCKET = "/run/nodeagent/agent.sock"
"""Of the first agent of a machine; others have theirs beside it."""
DNS_SOCKETS = ".sock"
DNS_PLACES = "dns-*.listen"
"""Next to the socket of a DNS process: the addresses at which it answers."""


def dns_socket(network_namespace: int) -> str:
    """Returns the socket of the DNS process of a network namespace, given by its inode."""
    return f"/run/nodeagent/dns-{network_namespace}.sock"


def files_left_by(network_namespace: int) -> tuple[str, ...]:
    """Returns the files that an agent of a network namespace and its DNS process leave when they are killed, by default paths."""
    names = dns_socket(network_namespace)
    return names, names.removesuffix(".sock") + ".listen", f"/run/nodeagent/agent-{network_namespace}.sock"
