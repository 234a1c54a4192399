"""linux/netfilter/nfnetlink.h, and the families of linux/netfilter.h."""

NFNL_SUBSYS_CTNETLINK = 1
NFNL_SUBSYS_IPSET = 6
NFNL_SUBSYS_NFTABLES = 10

# enum nfnetlink_groups
NFNLGRP_NFTRACE = 9

NFNL_MSG_BATCH_BEGIN = 0x10
NFNL_MSG_BATCH_END = 0x11

# enum nfnl_batch_attributes
NFNL_BATCH_GENID = 1

NFPROTO_INET = 1
NFPROTO_IPV4 = 2
NFPROTO_ARP = 3
NFPROTO_NETDEV = 5
NFPROTO_BRIDGE = 7
NFPROTO_IPV6 = 10
