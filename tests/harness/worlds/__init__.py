"""Worlds of network namespaces as tests need them: the standard one, hosts with routes of their own, SCTP, power failures."""
