"""Names as the clients of pods ask for them: dig, delv, glibc, musl, and a resolver that asks as Go's does."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.objects import ObjectMeta, Service, ServiceSpec
from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.dns import upstream_server
from tests.harness.objects import make_service, make_slices, service_port

SERVER = "169.254.20.10"
CLIENT = "caller"
SEARCH = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")
RESOLV_CONF = f"nameserver {SERVER}\nsearch {' '.join(SEARCH)}\noptions ndots:5\n"
ADDRESSES = (dns.rdatatype.A, dns.rdatatype.AAAA)
SOURCE = Path(__file__).parents[1] / "harness" / "dns" / "lookup.c"
MANY = tuple(f"10.1.2.{number}" for number in range(1, 61))
BOTH, FOUR, SIX = cluster_ips(901), cluster_ips(902)[0], cluster_ips(903)[1]
NAMES = {
    "both": {*BOTH},
    "both.default": {*BOTH},
    "both.default.svc.cluster.local.": {*BOTH},
    "Four": {FOUR},
    "six": {SIX},
    "www.example.com": {"192.0.2.53", "2001:db8::53"},
    "v6only.example.com": {"2001:db8::6"},
    "away": {"192.0.2.53", "2001:db8::53"},
    "nothing": set(),
    "nothing.example.com": set(),
}
"""What is asked for in a pod → the addresses that must come; none: an error."""


@pytest.fixture(scope="module")
def named(cluster: Cluster) -> Iterator[Cluster]:
    """An agent with names for Services of one and of both families, a large headless one and an external name."""
    tool("dig")
    cluster.expose("both", *BOTH)
    cluster.expose("four", FOUR)
    cluster.expose("six", SIX)
    many = make_service("many", "None", ports=(service_port(80, name="http"),), spec=ServiceSpec())
    external = ServiceSpec(type="ExternalName", external_name="www.example.com")
    away = Service(ObjectMeta(name="away", namespace="default"), external)
    cluster.manifests.put(many, *make_slices(many, [((address,), NODE) for address in MANY], target_port=80), away)
    with upstream_server.scripted_upstream(cluster.world.namespace(NODE)):
        agent = cluster.start_agent("--dns", "--dns-listen", SERVER, "--dns-upstreams", upstream_server.FLAG)
        agent.wait_until(lambda: "status: NOERROR" in dig(cluster, "both.default.svc.cluster.local"), "names")
        yield cluster
        agent.stop()
        cluster.kill_agents()
    cluster.call("cleanup")


def dig(cluster: Cluster, *arguments: str) -> str:
    return cluster.world.run(CLIENT, ["dig", f"@{SERVER}", "+tries=5", "+time=5", *arguments], check=False).stdout


def tool(name: str) -> str:
    """The path of a program that `make test` installs."""
    found = shutil.which(name)
    assert found is not None, f"no {name}: see TEST_PACKAGES in the Makefile"
    return found


@pytest.fixture(scope="module", params=["gcc", "musl-gcc"])
def lookup(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that calls getaddrinfo of glibc, or of musl."""
    program: Path = tmp_path_factory.mktemp("lookup") / request.param
    static = ["-static"] if request.param == "musl-gcc" else []
    subprocess.run([tool(request.param), *static, "-o", str(program), str(SOURCE)], check=True)
    return program


def looked_up(cluster: Cluster, program: Path, *names: str) -> dict[str, set[str]]:
    """What a program prints in a pod with the resolv.conf that kubelet writes; an error is the empty set."""
    conf = cluster.manifests.path.parent / "resolv.conf"
    conf.write_text(RESOLV_CONF)
    script = f'mount --bind {conf} /etc/resolv.conf && exec "$0" "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, str(program), *names]
    lines = [line.split() for line in cluster.world.run(CLIENT, command).stdout.splitlines()]
    return {line[0]: set() if line[1] == "error" else set(line[1:]) for line in lines}


def test_getaddrinfo_finds_existing_names(named: Cluster, lookup: Path) -> None:
    assert looked_up(named, lookup, *NAMES) == NAMES


def test_getaddrinfo_takes_a_large_answer(named: Cluster, lookup: Path) -> None:
    found = looked_up(named, lookup, "many")["many"]
    assert found <= set(MANY)
    # musl before 1.2.4 takes what came by UDP.
    assert len(found) == len(MANY) if lookup.name == "gcc" else len(found) > 1


def test_dig_sees_a_right_answer(named: Cluster) -> None:
    said = dig(named, "Four.default.svc.cluster.local", "A")
    assert "status: NOERROR" in said
    assert "flags: qr aa rd; QUERY: 1, ANSWER: 1, AUTHORITY: 0, ADDITIONAL: 1" in said
    assert ["Four.default.svc.cluster.local.", "30", "IN", "A", FOUR] in [line.split() for line in said.splitlines()]
    assert "status: NXDOMAIN" in dig(named, "nothing.default.svc.cluster.local")
    assert dig(named, "-x", FOUR, "+short").split() == ["four.default.svc.cluster.local."]
    assert dig(named, "-x", SIX, "+short").split() == ["six.default.svc.cluster.local."]
    many = ["many.default.svc.cluster.local", "+short"]
    assert sorted(dig(named, *many).split()) == sorted(MANY)
    assert sorted(dig(named, *many, "+tcp").split()) == sorted(MANY)
    assert 1 < len(dig(named, *many, "+ignore", "+noedns").split()) < len(MANY)
    assert len(dig(named, "_http._tcp.many.default.svc.cluster.local", "SRV", "+short").splitlines()) == len(MANY)


def test_delv_sees_a_right_answer(named: Cluster) -> None:
    said = named.world.run(CLIENT, [tool("delv"), "-i", f"@{SERVER}", "both.default.svc.cluster.local", "AAAA"])
    assert BOTH[1] in said.stdout


def go_lookup(name: str) -> set[str]:
    """As Go's resolver looks up a host: along the search path, A and AAAA at the same time from two sockets, EDNS 1232."""
    tries = [f"{name}.{domain}." for domain in SEARCH] if name.count(".") < 5 and not name.endswith(".") else []
    for candidate in [*tries, name if name.endswith(".") else f"{name}."]:
        replies = at_the_same_time(candidate, ("A", "AAAA"))
        assert {reply.rcode() for reply in replies} <= {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}
        assert len({reply.rcode() for reply in replies}) == 1, f"{candidate} is there for one type only"
        records = [one for reply in replies for rrset in reply.answer if rrset.rdtype in ADDRESSES for one in rrset]
        if records:
            return {one.to_text() for one in records}
    return set()


def at_the_same_time(name: str, kinds: tuple[str, ...]) -> list[dns.message.Message]:
    """The replies to queries that are sent before any is read, each from a socket of its own."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in kinds]
        for sock, kind in zip(sockets, kinds, strict=True):
            sock.settimeout(60)
            sock.connect((SERVER, 53))
            sock.send(dns.message.make_query(name, kind, use_edns=0, payload=1232).to_wire())
        return [dns.message.from_wire(sock.recv(4096)) for sock in sockets]


def test_a_resolver_like_that_of_go_finds_existing_names(named: Cluster) -> None:
    found = inside(named.world.namespace(CLIENT), lambda: {name: go_lookup(name) for name in NAMES})
    assert found == NAMES
