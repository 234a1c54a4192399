"""linux/netfilter/ipset/ip_set.h."""

IPSET_PROTOCOL_MIN = 6

# enum ipset_cmd
IPSET_CMD_DESTROY = 3
IPSET_CMD_LIST = 7

IPSET_ATTR_PROTOCOL = 1
IPSET_ATTR_SETNAME = 2
IPSET_ATTR_FLAGS = 6

IPSET_FLAG_LIST_SETNAME = 1 << 1

# enum ipset_errno: errors have these instead of an errno
IPSET_ERR_BUSY = 4100
IPSET_ERR_REFERENCED = 4108
