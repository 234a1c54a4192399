"""linux/netfilter/nfnetlink_conntrack.h; the status bits are of nf_conntrack_common.h, those of the filter exist only in the
kernel's net/netfilter/nf_conntrack_netlink.c."""

# enum cntl_msg_types
IPCTNL_MSG_CT_NEW = 0
IPCTNL_MSG_CT_GET = 1
IPCTNL_MSG_CT_DELETE = 2

# enum ctattr_type
CTA_TUPLE_ORIG = 1
CTA_TUPLE_REPLY = 2
CTA_STATUS = 3
CTA_PROTOINFO = 4
CTA_TIMEOUT = 7
CTA_MARK = 8
CTA_ID = 12
CTA_ZONE = 18
CTA_MARK_MASK = 21
CTA_FILTER = 25

# enum ctattr_tuple
CTA_TUPLE_IP = 1
CTA_TUPLE_PROTO = 2
CTA_TUPLE_ZONE = 3

# enum ctattr_ip
CTA_IP_V4_SRC = 1
CTA_IP_V4_DST = 2
CTA_IP_V6_SRC = 3
CTA_IP_V6_DST = 4

# enum ctattr_l4proto
CTA_PROTO_NUM = 1
CTA_PROTO_SRC_PORT = 2
CTA_PROTO_DST_PORT = 3

# enum ctattr_protoinfo, ctattr_protoinfo_tcp
CTA_PROTOINFO_TCP = 1
CTA_PROTOINFO_TCP_STATE = 1

# enum ctattr_filter
CTA_FILTER_ORIG_FLAGS = 1
CTA_FILTER_F_CTA_IP_SRC = 1 << 0
CTA_FILTER_F_CTA_IP_DST = 1 << 1
CTA_FILTER_F_CTA_PROTO_NUM = 1 << 3
CTA_FILTER_F_CTA_PROTO_DST_PORT = 1 << 5

# enum ip_conntrack_status
IPS_SEEN_REPLY = 0x2
IPS_ASSURED = 0x4
IPS_CONFIRMED = 0x8
IPS_DST_NAT = 0x20
IPS_OFFLOAD = 0x4000

# enum ip_conntrack_info
IP_CT_ESTABLISHED = 0
IP_CT_NEW = 2
IP_CT_IS_REPLY = 3
