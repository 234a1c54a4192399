"""Rules about the kernel: tables, elements and addresses of a Service that are missing or wrong there (pure)."""

from collections.abc import Iterator

from nodeagent.diagnosis.explain.kernel import TableState
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.explain.verdict import Finding, Severity
from nodeagent.model.addresses import Family

_SEE_THE_AGENT = "see that the agent runs and what hinders it: nodeagent problems, systemctl status nodeagent"


def kernel_findings(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields the tables and elements that are missing or wrong in the kernel."""
    families = {frontend.family.value for frontend in facts.frontends}
    for found in facts.kernel or ():
        if found.family not in families:
            continue
        agentless = "" if facts.agent_runs else ", and no agent runs here that would put it right"
        start = "" if facts.agent_runs else "start it: systemctl start nodeagent, or nodeagent run --once"
        table = f"table {'ip' if found.family == Family.IPV4.value else 'ip6'} nodeagent"
        if found.table is not TableState.RIGHT:
            yield Finding(
                Severity.BROKEN,
                f"its {found.family} addresses do not work on this node",
                f"{table} is {found.table.value}: another program removed or changed it, or no agent ran here yet{agentless}",
                start
                or "see that the agent runs, it puts that right at once: systemctl status nodeagent, or nodeagent run --once",
            )
        elif found.deviations:
            more = f", and {len(found.deviations) - 1} more" if len(found.deviations) > 1 else ""
            yield Finding(
                Severity.BROKEN if not found.frontends else Severity.IMPAIRED,
                f"what the kernel does with its {found.family} addresses is not what it should",
                f"in {table} {found.deviations[0]}{more}{agentless}",
                start or _SEE_THE_AGENT,
            )
        if found.not_local:
            more = f", and {len(found.not_local) - 1} more" if len(found.not_local) > 1 else ""
            yield Finding(
                Severity.IMPAIRED,
                f"connections of this node itself to its {found.family} addresses may fail",
                f"the service interface does not carry {found.not_local[0]}{more}{agentless}",
                start or _SEE_THE_AGENT,
            )
