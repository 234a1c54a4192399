"""User data of a set: what nft reads about it beside its type."""

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.typeof import set_user_data
from nodeagent.wire.netlink.nf_tables.user_data import read_user_data
from nodeagent.wire.netlink.uapi.nf_tables import NFTNL_UDATA_SET_DATA_TYPEOF, NFTNL_UDATA_SET_KEY_TYPEOF

SPECS = {spec.name: spec for spec in schema.set_specs(counters=True)}
# What nft 1.0.6 and 1.1.3 wrote on a little-endian machine for `typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 :
# ip daddr . th dport`, for the same with `ip6 daddr`, and for both without the address in the key.
DPORT = "14000407000000010c00040b000000010402000000"
PROTOCOL = "0e0004090000000106000410000000"
SLOT = "1a0004170000000112000401000000010400000100020400000000"
ADDRESS = {
    Family.IPV4: "14000407000000010c00040c00000001040c000000",
    Family.IPV6: "14000407000000010c00040d000000010409000000",
}


def concatenation(*fields: str) -> str:
    body = "".join(f"{place:02x}{field}" for place, field in enumerate(fields))
    return f"00040d00000001{len(body) // 2:02x}{body}"


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("name", [schema.BACKENDS, schema.NODEPORT_BACKENDS])
def test_a_map_with_slots_has_the_type_that_nft_gives_it(family: Family, name: str) -> None:
    reported = read_user_data(set_user_data(SPECS[name], family))

    frontend = (ADDRESS[family], PROTOCOL, DPORT) if name == schema.BACKENDS else (PROTOCOL, DPORT)
    assert reported[NFTNL_UDATA_SET_KEY_TYPEOF].hex() == concatenation(*frontend, SLOT)
    assert reported[NFTNL_UDATA_SET_DATA_TYPEOF].hex() == concatenation(ADDRESS[family], DPORT)


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_the_kernel_has_room_for_the_user_data_of_each_set(family: Family) -> None:
    """NFT_USERDATA_MAXLEN."""
    assert max(len(set_user_data(spec, family)) for spec in SPECS.values()) <= 256
