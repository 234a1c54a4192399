"""A packet through nftables rules, as the kernel would take it (pure). docs/dataplane.md has the chains."""
