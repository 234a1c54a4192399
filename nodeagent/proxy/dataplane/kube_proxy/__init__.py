"""Takes over from kube-proxy: finds what it leaves on a node, in each of its modes, and removes it.

    kube_proxy_names  what belongs to kube-proxy and what only looks like it  (pure)
    rules          rules of an iptables table → what is removed and what must stay  (pure)
    iptables_save  the text of iptables-save and iptables-restore             (pure)
    iptables_legacy  xtables tables, through the tools
    iptables_nft   tables of iptables-nft, through nf_tables netlink: no tool needed
    own_tables     the tables `kube-proxy` of its nftables mode
    ipset, ipvs    sets, virtual servers and `kube-ipvs0` of its ipvs mode
    ipvs_messages  virtual servers as bytes                                   (pure)
    running_kube_proxy  whether it still runs here
    leftovers      all of it: look, and remove what was found

A look at a place changes nothing; what it found can then be removed. A place that fails does not stop
the others. docs/migrate-from-kube-proxy.md describes how a node is switched without a gap.
"""
