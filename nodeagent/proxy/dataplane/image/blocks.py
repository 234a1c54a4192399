"""Blocks of addresses: which contain ClusterIPs, and which of these contain no other address of ours (pure, incremental)."""

from collections import Counter
from collections.abc import Iterable, Mapping

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.image.image import Elements
from nodeagent.proxy.dataplane.program import schema

_NO_CLUSTER_IPS = (schema.MASQUERADE_FRONTENDS, schema.FRONTENDS_CLUSTER_SCOPE)
"""The sets by which postrouting recognises a connection to another address of a Service."""
_MASKS = {len(mask): int.from_bytes(mask) for mask in schema.CLUSTER_IP_BLOCK_MASKS.values()}
"""By length of the address."""


def cluster_ip_block(packed: bytes) -> bytes:
    """Returns the first address of the block of a ClusterIP."""
    return (int.from_bytes(packed) & _MASKS[len(packed)]).to_bytes(len(packed))


def _last_address(block: bytes) -> bytes:
    mask = schema.CLUSTER_IP_BLOCK_MASKS[_family(block)]
    return bytes(first | ~keep & 0xFF for first, keep in zip(block, mask, strict=True))


class OtherAddresses:
    """Counts, for each block, the addresses of Services in it that are not ClusterIPs."""

    def __init__(self, family: Family) -> None:
        self._length = family.address_length
        self._frontends: Counter[bytes] = Counter()

    def add(self, keys: Mapping[str, Iterable[bytes]]) -> set[bytes]:
        """Counts a service's elements, given by set; returns the blocks in which something may have changed."""
        return self._count(keys, 1)

    def remove(self, keys: Mapping[str, Iterable[bytes]]) -> set[bytes]:
        """Reverses `add`."""
        return self._count(keys, -1)

    def absent(self, block: bytes, node_ports: Elements) -> bool:
        """Returns whether the block has no such address, and none where node ports answer (ranges, as elements of an interval set)."""
        last = _last_address(block)
        return not self._frontends[block] and all(
            key[self._length :] < block or key[: self._length] > last for key in node_ports
        )

    def _count(self, keys: Mapping[str, Iterable[bytes]], by: int) -> set[bytes]:
        touched = set(keys.get(schema.CLUSTER_IP_BLOCKS, ()))
        for name in _NO_CLUSTER_IPS:
            for key in keys.get(name, ()):
                block = cluster_ip_block(key[: self._length])
                self._frontends[block] += by
                touched.add(block)
        return touched


def _family(packed: bytes) -> Family:
    return Family.IPV4 if len(packed) == Family.IPV4.address_length else Family.IPV6
