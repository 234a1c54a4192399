"""Brings the desired state into the kernel: the nftables table, the service interface, conntrack and sysctls.

Everything of ours in the kernel is recognised by its name alone, so a restarted agent finds it: the table
`nodeagent` in ip and ip6, the interface `nodeagent0`. Nothing else is ever written.
"""
