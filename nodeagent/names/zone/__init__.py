"""Decides what a name of the cluster means: Services and endpoints in, records and prepared answers out. Pure.

The rules are those of "Kubernetes DNS-Based Service Discovery" 1.1.0; where it leaves something open, those of CoreDNS
(docs/dns.md). Where CoreDNS contradicts an RFC, the RFC is followed (docs/decisions/0060-names-follow-the-rfcs.md).
"""
