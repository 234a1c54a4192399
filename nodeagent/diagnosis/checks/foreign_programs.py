"""Programs of tc and XDP, policies of IPsec, and VLANs of bridges on this node (pure)."""

from collections.abc import Iterator, Mapping, Sequence

from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.diagnosis.trace.link_programs import LinkProgram
from nodeagent.wire.netlink.ipsec import Policy

MOST_NAMED = 3


def link_program_findings(programs: Sequence[LinkProgram]) -> Iterator[Finding]:
    """Yields one note. It is no failure, because most programs are there on purpose: a network plugin, a bandwidth limit."""
    if not programs:
        return
    named = "; ".join(one.title for one in programs[:MOST_NAMED])
    more = f"; and {len(programs) - MOST_NAMED} more" if len(programs) > MOST_NAMED else ""
    detail = f"packets meet programs that may drop or change them, which is not followed: {named}{more}"
    yield Finding("tc and XDP", Result.NOTE, detail, programs[0].command)


def ipsec_findings(policies: Sequence[Policy]) -> Iterator[Finding]:
    """Yields one note. Most policies lead packets into a tunnel, and a policy that blocks may be there on purpose."""
    if policies:
        blocking = sum(one.blocks for one in policies)
        blocked = f"; {blocking} of {len(policies)} block what they are about" if blocking else ""
        many = f"{len(policies)} policies" if len(policies) > 1 else "a policy"
        detail = f"packets meet {many}, not followed{blocked}"
        yield Finding("IPsec", Result.NOTE, detail, "ip xfrm policy")


def vlan_findings(ports: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
    """Yields one note. The hosts behind these ports may be separated on purpose. ports: name → (reason, command)."""
    for why, do in list(ports.values())[:1]:
        others = len(ports) - 1
        more = f" (and {others} more port{'' if others == 1 else 's'})" if others else ""
        detail = f"frames between this node and a port of a bridge are dropped: {why}{more}"
        yield Finding("bridge VLANs", Result.NOTE, detail, do)
