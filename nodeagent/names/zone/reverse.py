"""Names that encode addresses: the reverse zones and pod names."""

from ipaddress import AddressValueError, IPv4Address, IPv6Address

from nodeagent.wire.dns.domain_names import from_text

IN_ADDR = from_text("in-addr.arpa.")
IP6 = from_text("ip6.arpa.")
OCTETS, NIBBLES = 4, 32
"""Labels of an address in the two reverse zones."""
HEX = frozenset(b"0123456789abcdef")
PLAIN = frozenset(b"0123456789abcdef-:")


def address_of(labels: list[bytes], zone: bytes) -> str | None:
    """Returns the address that labels (lower case) below a reverse zone encode, or None."""
    if zone == IN_ADDR:
        text = ".".join(label.decode("latin-1") for label in reversed(labels))
        try:
            return str(IPv4Address(text)) if len(labels) == OCTETS else None
        except AddressValueError:
            return None
    if len(labels) != NIBBLES or any(len(label) != 1 or label[0] not in HEX for label in labels):
        return None
    return str(IPv6Address(int(b"".join(reversed(labels)), 16)))


def pod_address(label: bytes) -> str | None:
    """Returns the address in a pod's label (lower case), ``10-244-1-5`` or ``fd00--5``; None for other text. A mapped
    IPv4 address becomes IPv4, as in CoreDNS."""
    if not PLAIN.issuperset(label):  # Python would accept a zone after %, and dots at the end of an IPv6 address
        return None
    text = label.decode("ascii")
    try:
        if text.count("-") == OCTETS - 1 and "--" not in text:
            return str(IPv4Address(text.replace("-", ".")))
        address = IPv6Address(text.replace("-", ":"))
        return str(address.ipv4_mapped or address)
    except AddressValueError:
        return None
