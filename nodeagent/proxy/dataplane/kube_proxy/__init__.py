"""Taking over from kube-proxy: what it leaves on a node, in each of its modes, and how that is removed.

    names          what is kube-proxy's and what only looks like it           (pure)
    rules          rules of an iptables table → what goes and what must stay  (pure)
    iptables_save  the text of iptables-save and iptables-restore             (pure)
    iptables_legacy  xtables tables, through the tools
    iptables_nft   tables of iptables-nft, through nf_tables netlink: no tool needed
    own_tables     the tables `kube-proxy` of its nftables mode
    ipset, ipvs    sets, virtual servers and `kube-ipvs0` of its ipvs mode
    ipvs_messages  virtual servers as bytes                                   (pure)
    process        whether it still runs here
    leftovers      all of it: look, and remove what was found

A place is looked at without changing anything, and what it found can then be removed. One that fails does not stop
the others. docs/migrate-from-kube-proxy.md tells how a node is switched without a gap.
"""
