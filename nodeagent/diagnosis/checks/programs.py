"""Other programs that work on the same packets: how each is recognised, what follows from it, what to do (pure).

Names of chains, tables and interfaces are those of the programs' own sources and documents (docs/neighbours.md).
"""

from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_network

from msgspec import Struct

from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.diagnosis.checks.node_facts import Facts
from nodeagent.proxy.dataplane.program.chain import HookNumber

CGNAT = "100.64.0.0/10"


class Program(Struct, frozen=True):
    """A known program. chains, links: prefixes of the names it uses. tables: whole names, without the family."""

    name: str
    consequence: str
    cure: str
    chains: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    def seen(self, facts: Facts) -> str:
        """Returns what shows that it runs here, one chain, table and interface at most; empty if nothing does."""
        chain = next((one.name for one in facts.chains if one.name.startswith(self.chains or ("\0",))), None)
        table = next((name for name in sorted(facts.tables()) if name in self.tables), None)
        link = next((one.name for one in facts.links if one.name.startswith(self.links or ("\0",))), None)
        found = {"chain": chain, "table": table, "interface": link}
        return ", ".join(f"{kind} {name}" for kind, name in found.items() if name)


KUBE_PROXY = Program(
    "kube-proxy",
    "what it left still answers for Services that this agent does not know; for those that both know, ours comes first",
    "stop it for good, then: nodeagent cleanup --of kube-proxy",
    chains=("KUBE-SERVICES", "KUBE-SVC-", "KUBE-NODEPORTS"),
    tables=("kube-proxy",),
    links=("kube-ipvs0",),
)
PROGRAMS = (
    KUBE_PROXY,
    Program(
        "firewalld",
        "it lets through what was translated, so Services work; ports of the node itself must be opened, health checks too",
        "firewall-cmd --permanent --add-port=10256/tcp, and each healthCheckNodePort",
        tables=("firewalld",),
    ),
    Program(
        "ufw",
        "it drops what nobody allowed, and sees connections after their destination was rewritten: allow the pods' range",
        "ufw route allow to POD-CIDR; ufw allow PORT for servers of the node itself",
        chains=("ufw-", "ufw6-"),
    ),
    Program(
        "Docker",
        "it sets the policy of FORWARD to DROP where it turned on forwarding: then only what a rule accepts reaches pods",
        "see whether the pod network accepts its own range, or: iptables -I DOCKER-USER -d POD-CIDR -j ACCEPT, and the same with -s",
        chains=("DOCKER",),
        tables=("docker-bridges",),
        links=("docker0",),
    ),
    Program(
        "CNI portmap",
        "hostPorts answer at the node's addresses, and never at a ClusterIP: ours comes first",
        "nothing",
        chains=("CNI-HOSTPORT-", "CNI-DN-"),
        tables=("cni_hostport",),
    ),
    Program(
        "flannel",
        "it rewrites the source of what leaves the pod network; affinity and policy Local hold nevertheless",
        "nothing",
        chains=("FLANNEL-",),
        tables=("flannel-ipv4", "flannel-ipv6"),
        links=("flannel.", "flannel-v6."),
    ),
    Program(
        "Calico",
        "its policies see connections to Services after their destination was rewritten; its eBPF dataplane would take "
        "Services over",
        "allow the endpoints, not the ClusterIP; leave bpfEnabled off, or do not run this agent",
        chains=("cali-", "filter-cali-", "nat-cali-"),
        tables=("calico",),
        links=("cali", "vxlan.calico"),
    ),
    Program(
        "Cilium",
        "without kube-proxy it translates connections in the socket, before any rule: what this agent programs is not asked",
        "set kubeProxyReplacement: false in Cilium, or do not run this agent",
        chains=("CILIUM_",),
        links=("cilium_host", "cilium_net"),
    ),
    Program(
        "Tailscale",
        f"it drops packets from {CGNAT} that come in by another interface than its own",
        f"keep pods and Services out of {CGNAT}; with --accept-routes see that pods' ranges are not announced",
        chains=("ts-input", "ts-forward", "ts-postrouting"),
        links=("tailscale",),
    ),
    Program(
        "libvirt",
        "it refuses connections to its guests from other networks: guests as endpoints are not reached",
        "use a routed or open network for such guests",
        chains=("LIBVIRT_", "guest_"),
        tables=("libvirt_network",),
        links=("virbr",),
    ),
    Program(
        "Podman",
        "published ports answer at the node's addresses, and never at a ClusterIP: ours comes first",
        "nothing",
        chains=("NETAVARK",),
        tables=("netavark",),
    ),
    Program(
        "kube-router",
        "its proxy answers for the same Services with IPVS",
        "run it with --run-service-proxy=false",
        chains=("KUBE-ROUTER-",),
        links=("kube-dummy-if",),
    ),
    Program(
        "Weave Net",
        "its policies see connections to Services after their destination was rewritten",
        "allow the endpoints",
        chains=("WEAVE",),
        links=("weave",),
    ),
)


def program_findings(facts: Facts) -> Iterator[Finding]:
    """Yields a finding for each program that is seen here: a failure if it certainly breaks something, else a note."""
    for program in PROGRAMS:
        seen = program.seen(facts)
        harm = _HARMS.get(program.name, _no_harm)(facts)
        if seen or harm:
            detail = f"{harm}, {program.consequence}" if harm else f"{seen}: {program.consequence}"
            cure = "" if program.cure == "nothing" and not harm else program.cure
            yield Finding(program.name, Result.FAILED if harm else Result.NOTE, detail, cure)


def _no_harm(facts: Facts) -> str:  # noqa: ARG001 - one of several
    return ""


def _second_proxy(facts: Facts) -> str:
    return f"a kube-proxy runs here (pid {facts.kube_proxy})" if facts.kube_proxy is not None else ""


def _in_cgnat(facts: Facts) -> str:
    """Returns which pod range overlaps the range whose packets Tailscale drops, as text; empty if no range does."""
    if not any(chain.name == "ts-input" for chain in facts.chains):
        return ""
    shared = ip_network(CGNAT)
    inside = [cidr for cidr in facts.pod_cidrs if ":" not in cidr and ip_network(cidr).overlaps(shared)]
    return f"pods are in {inside[0]}" if inside else ""


_HARMS: dict[str, Callable[[Facts], str]] = {"kube-proxy": _second_proxy, "Tailscale": _in_cgnat}


def closed_forwarding(facts: Facts) -> Iterator[Finding]:
    """Yields a note for each forward chain with policy DROP."""
    for chain in facts.chains:
        if chain.hook is not None and chain.hook.number == HookNumber.FORWARD and not chain.accepts:
            yield Finding(
                "forwarding",
                Result.NOTE,
                f"{chain.table}, chain {chain.name} drops what none of its rules accepts, connections to pods too",
                "nodeagent trace CLIENT SERVICE:PORT says whether one of them does",
            )


def rules_outside(tables: Iterable[str]) -> Iterator[Finding]:
    """Yields a note for each table whose rules are not evaluated. tables: names with the family."""
    for table in tables:
        yield Finding(
            "rules outside of IP",
            Result.NOTE,
            f"table {table}: packets meet it before or after all rules of IP, and nodeagent trace does not evaluate it",
            f"see whether it drops what goes to Services: nft list table {table}",
            unseen=True,
        )


def unread_rules(notes: Iterable[str]) -> Iterator[Finding]:
    """Yields a note for each thing of the node that could not be read or is not evaluated, without repetitions."""
    for note in dict.fromkeys(notes):
        yield Finding("rules of others", Result.NOTE, note, unseen=True)
