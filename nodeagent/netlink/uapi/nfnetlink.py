"""linux/netfilter/nfnetlink.h, and of linux/netfilter.h the families."""

NFNL_SUBSYS_CTNETLINK = 1
NFNL_SUBSYS_IPSET = 6
NFNL_SUBSYS_NFTABLES = 10

NFNL_MSG_BATCH_BEGIN = 0x10
NFNL_MSG_BATCH_END = 0x11

# enum nfnl_batch_attributes
NFNL_BATCH_GENID = 1

NFPROTO_IPV4 = 2
NFPROTO_IPV6 = 10
