"""Simulates a packet in nftables rules, as the kernel would treat it (pure). docs/dataplane.md has the chains."""
