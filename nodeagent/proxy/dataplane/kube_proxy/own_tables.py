"""The table `kube-proxy` of kube-proxy's nftables mode, one in each family. Everything of that mode is in it."""

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Message, Transaction
from nodeagent.proxy.dataplane.kube_proxy import kube_proxy_names
from nodeagent.proxy.dataplane.kube_proxy.leftovers import Finding
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables.ruleset_objects import pack_table
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_DELTABLE, NFT_MSG_GETTABLE

_TABLE = pack_table(kube_proxy_names.TABLE)


class OwnTable:
    """``table ip kube-proxy`` or ``table ip6 kube-proxy``."""

    def __init__(self, socket: Ruleset, family: Family) -> None:
        self._socket = socket
        self._family = family

    @property
    def name(self) -> str:
        return "nftables"

    def look(self) -> Finding:
        """Returns whether the table exists, as a finding. Raises NotPermitted."""
        try:
            self._socket.get(NFT_MSG_GETTABLE, nfproto(self._family), _TABLE)
        except FileNotFoundError:
            return Finding()
        family = "ip" if self._family is Family.IPV4 else "ip6"
        return Finding((f"table {family} {kube_proxy_names.TABLE}",), remove=self._remove)

    def _remove(self) -> None:
        transaction = Transaction(self._family, {})
        transaction.messages.append(Message(NFT_MSG_DELTABLE, 0, _TABLE, f"table {kube_proxy_names.TABLE}"))
        self._socket.commit(transaction)
