"""Files that live as long as the machine runs."""


def dns_socket(network_namespace: int) -> str:
    """Where the DNS process of a network namespace, given by its inode, is found."""
    return f"/run/nodeagent/dns-{network_namespace}.sock"
