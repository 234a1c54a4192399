"""The first line of `nodeagent explain`: each fault is named, and without it nothing is."""

from collections.abc import Sequence

import pytest

from nodeagent.diagnosis.explain.explanation_text import lines_of
from nodeagent.diagnosis.explain.kernel import KernelService, Probe, ProbeResult, TableState
from nodeagent.diagnosis.explain.service import Explanation, explain_missing, explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.explain.verdict import Severity
from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    Endpoint,
    EndpointHints,
    EndpointSlice,
    ForZone,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.client.api_errors import (
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    ServerUnreachableError,
    UnauthorizedError,
    UntrustedServerError,
)
from nodeagent.proxy.source.informer import following_problem
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port

HTTP = (service_port(80, name="http"),)
HERE = make_endpoint("10.244.1.10", "node-a")
THERE = make_endpoint("10.244.2.10", "node-b")
DUAL = ("10.96.0.10", "fd00:10:96::a")


class World:
    """Services and slices as a snapshot."""

    node = None
    service_cidrs = ()

    def __init__(self, *objects: Service | EndpointSlice) -> None:
        self.services = {
            ObjectKey(one.metadata.namespace, one.metadata.name): one for one in objects if isinstance(one, Service)
        }
        self._slices = [one for one in objects if isinstance(one, EndpointSlice)]

    def slices_of(self, service: ObjectKey) -> list[EndpointSlice]:
        wanted = {"kubernetes.io/service-name": service.name}
        return [one for one in self._slices if one.metadata.labels == wanted]


def test_a_service_that_the_agent_has_not_worked_in_is_not_healthy() -> None:
    service = web()
    context = Context(node_name="node-a", zone=None)
    found = explain_service(
        ServiceFacts(service=service, slices=(slice_of(service, HERE),), context=context, state=None, kernel=())
    )
    assert not found.healthy
    assert found.verdict.startswith("broken: it is not programmed yet, because the agent has received it")


def explained(
    *objects: Service | EndpointSlice,
    name: str = "web",
    problems: Sequence[Problem] = (),
    kernel: Sequence[KernelService] | None = None,
    probes: Sequence[Probe] = (),
    client: str = "",
    port: str = "",
    zone: str | None = None,
    astray: Sequence[ObjectKey] = (),
    agent_runs: bool = True,
) -> Explanation:
    world = World(*objects)
    context = Context(node_name="node-a", zone=zone)
    translator = Translator()
    translator.update(world, None, context)
    key = ObjectKey("default", name)
    state = translator.states.get(key)
    return explain_service(
        ServiceFacts(
            service=world.services[key],
            slices=world.slices_of(key),
            context=context,
            state=state,
            problems=[*problems, *(state.problems if state else ())],
            kernel=kernel,
            probes=probes,
            client=client,
            agent_runs=agent_runs,
            astray=astray,
            port=port,
        )
    )


def web(spec: ServiceSpec | None = None, *ips: str, ports: Sequence[ServicePort] = HTTP) -> Service:
    return make_service("web", *(ips or ("10.96.0.10",)), ports=ports, spec=spec)


def slice_of(service: Service, *endpoints: Endpoint, port_name: str = "http") -> EndpointSlice:
    made = make_slice(service, endpoints, target_port=8080)
    ports = made.ports or ()
    return EndpointSlice(
        made.metadata,
        made.address_type,
        made.endpoints,
        tuple(type(one)(port_name, one.port, one.protocol) for one in ports),
    )


def test_a_service_that_works_is_healthy_and_nothing_is_found() -> None:
    found = explained(web(), slice_of(web(), HERE, THERE))
    assert (found.verdict, found.healthy, found.findings) == ("healthy: 2 of 2 endpoints used", True, ())


def test_unused_endpoints_are_counted_and_reported() -> None:
    resting = make_endpoint("10.244.1.11", "node-a", ready=False)
    found = explained(web(), slice_of(web(), HERE, THERE, resting))
    assert found.verdict == "healthy: 2 of 3 endpoints used"
    lines = list(lines_of(found, "here"))
    assert "  not used 10.244.1.11:8080 on node-a for port http: not ready" in lines


UNREADY = make_endpoint("10.244.1.10", "node-a", ready=False)
DRAINING = make_endpoint("10.244.1.10", "node-a", ready=False, serving=True, terminating=True)
GONE = make_endpoint("10.244.1.10", "node-a", ready=False, serving=False, terminating=True)
LOCAL = ServiceSpec(internal_traffic_policy="Local")
NAMED = (ServicePort(80, "http", "TCP", target_port="web"),)

FAULTS = {
    "no slice": ((web(),), "broken", "no endpoints", "it has no EndpointSlice: it has no selector and nobody wrote", "see that the controllers run"),
    "empty slice": ((web(), slice_of(web())), "broken", "no endpoints", "its EndpointSlices are empty", "get pods"),
    "port name": (
        (web(), slice_of(web(), HERE, port_name="www")),
        "broken",
        "port http has no endpoints",
        "no slice has a port http/TCP (the slices have www (8080/TCP))",
        "same names",
    ),
    "name of a container port": (
        (web(ports=NAMED), slice_of(web(), HERE, port_name="www")),
        "broken",
        "port http has no endpoints",
        "no slice has a port http/TCP",
        "targetPort is the name web: give a container port of the pods that name",
    ),
    "not ready": (
        (web(), slice_of(web(), UNREADY)),
        "broken",
        "every connection is refused",
        "its only endpoint is not ready (10.244.1.10 on node-a)",
        "readiness probes",
    ),
    "gone": ((web(), slice_of(web(), GONE)), "broken", "refused", "terminates and no longer serves", "no new pod"),
    "draining": ((web(), slice_of(web(), DRAINING)), "impaired", "only endpoints that terminate", "none is ready", "kubectl"),
    "internal policy": (
        (web(LOCAL), slice_of(web(), THERE)),
        "broken",
        "drops every connection on this node",
        "internalTrafficPolicy is Local and its only endpoint is not on node node-a (10.244.2.10 on node-b)",
        "run one of its pods on node-a",
    ),
    "a family without endpoints": (
        (web(None, *DUAL), slice_of(web(None, *DUAL), HERE)),
        "impaired",
        "[fd00:10:96::a]:80/TCP has no endpoint",
        "is IPv6",
        "take IPv6 out of ipFamilies",
    ),
    "the wrong family": (
        (web(None, "fd00:10:96::a"), slice_of(web(), HERE)),
        "broken",
        "refused",
        "its endpoints are IPv4 and the Service has no such address",
        "ipFamilies",
    ),
    "an unusable address": ((web(), slice_of(web(), make_endpoint("127.0.0.1"))), "broken", "refused", "127.0.0.1", "EndpointSlices"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_in_the_first_line(fault: str) -> None:
    objects, severity, what, because, do = FAULTS[fault]
    found = explained(*objects)
    assert found.verdict.startswith(f"{severity}: ")
    reported, _, rest = found.verdict.partition(", because ")
    why, _, cure = rest.partition("; ")
    assert what in reported
    assert because in why
    assert do in cure
    assert not found.healthy


def test_policy_local_on_a_node_without_a_pod() -> None:
    spec = ServiceSpec(external_traffic_policy="Local", type="NodePort")
    service = web(spec, ports=(service_port(80, name="http", node_port=30080),))
    found = explained(service, slice_of(service, THERE))
    assert found.verdict == (
        "impaired: connections from outside to *:30080/TCP are dropped on this node, because externalTrafficPolicy is"
        " Local and none of the 1 endpoints of port http is on node node-a; run one of its pods on node-a,"
        " connect to a node that has one, or set externalTrafficPolicy: Cluster"
    )
    assert "partly   10.244.2.10:8080" in "\n".join(lines_of(found, "here"))
    assert explained(service, slice_of(service, HERE, THERE)).healthy


def guarded() -> Service:
    spec = ServiceSpec(load_balancer_source_ranges=("203.0.113.0/24",))
    service = web(spec)
    status = ServiceStatus(LoadBalancerStatus((LoadBalancerIngress("198.51.100.1"),)))
    return Service(service.metadata, service.spec, status)


def test_source_ranges_shut_out_a_client_and_let_in_another() -> None:
    objects = (guarded(), slice_of(web(), HERE))
    assert explained(*objects).verdict == (
        "healthy: 1 of 1 endpoints used; 198.51.100.1:80/TCP is only for 203.0.113.0/24"
    )
    shut_out = explained(*objects, client="192.0.2.7")
    assert shut_out.verdict == (
        "broken: 192.0.2.7 cannot connect to 198.51.100.1:80/TCP, its connections are dropped, because"
        " loadBalancerSourceRanges has only 203.0.113.0/24; add a range with 192.0.2.7 to loadBalancerSourceRanges"
    )
    assert explained(*objects, client="203.0.113.7").healthy


def test_the_service_that_lost_its_address_is_reported() -> None:
    both = [make_service(name, ip, ports=HTTP, spec=ServiceSpec(external_ips=("198.51.100.9",)))
            for name, ip in (("other", "10.96.0.11"), ("web", "10.96.0.10"))]  # fmt: skip
    slices = [make_slice(one, [HERE]) for one in both]
    found = explained(*both, *slices)
    assert found.verdict.startswith("impaired: ExternalIP 198.51.100.9 port 80/TCP does not lead to it, because ")
    assert "Service default/other has that address too" in found.verdict
    assert explained(*both, *slices, name="other").healthy


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (ServerUnreachableError("said so"), "see that the API server can be reached from this node"),
        (UnauthorizedError(401, "said so"), "give the agent a credential that the server takes"),
        (ForbiddenError(403, "said so"), "allow its account to list and watch that"),
        (MalformedAnswerError("said so"), "see what answers at that address: it is not an API server"),
        (UntrustedServerError("said so", "renew it"), "renew it"),
    ],
)
def test_the_advice_follows_from_the_answer_of_the_api_server(error: KubeError, cure: str) -> None:
    said = following_problem("services", error)
    found = explained(web(), slice_of(web(), HERE), problems=[said])
    assert found.verdict.startswith(
        "impaired: what this node knows of it may be outdated, because API resource services"
    )
    assert f"said so; {cure}" in found.verdict


def test_a_health_check_port_that_another_has() -> None:
    taken = Problem("Service default/web", "FailedToStartServiceHealthcheck", "cannot listen on port 32000")
    found = explained(web(), slice_of(web(), HERE), problems=[taken])
    assert "cannot listen on port 32000; see who has that port (ss -ltnp)" in found.verdict


@pytest.mark.parametrize("runs", [True, False])
def test_without_an_agent_nobody_puts_the_kernel_right(runs: bool) -> None:
    for kernel in (
        KernelService("IPv4", TableState.MISSING),
        KernelService("IPv4", TableState.RIGHT, deviations=("one is missing",)),
    ):
        found = explained(web(), slice_of(web(), HERE), kernel=[kernel], agent_runs=runs)
        assert ("and no agent runs here that would put it right; start it" in found.verdict) is not runs


def test_an_api_server_that_is_silent_makes_it_outdated() -> None:
    stale = following_problem("endpointslices", ServerUnreachableError("no answer"))
    found = explained(web(), slice_of(web(), HERE), problems=[stale])
    assert found.verdict == (
        "impaired: what this node knows of it may be outdated, because API resource endpointslices: not followed: no"
        " answer; see that the API server can be reached from this node"
    )


@pytest.mark.parametrize("state", [TableState.MISSING, TableState.FOREIGN, TableState.CHANGED])
def test_a_table_that_is_gone_goes_before_everything_else(state: TableState) -> None:
    found = explained(web(), kernel=[KernelService("IPv4", state), KernelService("IPv6", TableState.RIGHT)])
    assert found.verdict.startswith(
        "broken: its IPv4 addresses do not work on this node, because table ip nodeagent is "
    )
    assert state.value in found.verdict
    assert len(found.findings) == 2


def test_a_table_of_a_family_without_addresses_does_not_matter() -> None:
    kernel = [KernelService("IPv4", TableState.RIGHT), KernelService("IPv6", TableState.MISSING)]
    assert explained(web(), slice_of(web(), HERE), kernel=kernel).healthy


def test_a_missing_element_is_reported() -> None:
    kernel = [
        KernelService("IPv4", TableState.RIGHT, deviations=("frontends { 10.96.0.10 . tcp . 80 } is missing (to 0:1)",))
    ]
    found = explained(web(), slice_of(web(), HERE), kernel=kernel)
    assert "frontends { 10.96.0.10 . tcp . 80 } is missing" in found.verdict


@pytest.mark.parametrize(
    ("answers", "severity"),
    [
        ((ProbeResult.REFUSED, ProbeResult.REFUSED), Severity.BROKEN),
        ((ProbeResult.REFUSED, ProbeResult.ACCEPTED), Severity.IMPAIRED),
        ((ProbeResult.UNREACHABLE, ProbeResult.ACCEPTED), Severity.IMPAIRED),
        ((ProbeResult.ACCEPTED, ProbeResult.ACCEPTED), Severity.NOTE),
        ((ProbeResult.SILENT, ProbeResult.SILENT), Severity.IMPAIRED),
        ((ProbeResult.SILENT, ProbeResult.ACCEPTED), Severity.IMPAIRED),
    ],
)
def test_the_verdict_uses_connections_to_endpoints(answers: tuple[ProbeResult, ...], severity: Severity) -> None:
    probes = [Probe(f"10.244.1.1{n}:8080", answer, "why") for n, answer in enumerate(answers)]
    found = explained(web(), slice_of(web(), HERE, THERE), probes=probes)
    assert found.rank is severity
    if ProbeResult.REFUSED in answers:
        assert "refuse connections, because nobody listens there: 10.244.1.10:8080" in found.verdict
        assert "(why); compare targetPort" in found.verdict
    elif ProbeResult.SILENT in answers:
        assert found.verdict.startswith(
            f"impaired: {answers.count(ProbeResult.SILENT)} of 2 endpoints do not answer this node, because nothing"
        )


def test_one_port_is_judged_by_itself() -> None:
    service = web(ports=(service_port(80, name="http"), service_port(443, name="https")))
    objects = (service, slice_of(web(), HERE))
    assert explained(*objects, port="http").healthy
    assert explained(*objects, port="80").healthy
    assert "port https has no endpoints" in explained(*objects).verdict
    assert "port https has no endpoints" in explained(*objects, port="443").verdict
    assert "has no port htps (did you mean https?), because" in explained(*objects, port="htps").verdict


def test_zones_and_duplicates_are_reported() -> None:
    def hinted(address: str, zone: str) -> Endpoint:
        return Endpoint((address,), None, "node-b", zone, EndpointHints((ForZone(zone),)))

    near, far = hinted("10.244.1.1", "zone-a"), hinted("10.244.2.1", "zone-b")
    found = explained(web(), slice_of(web(), near, far, near), zone="zone-a")
    assert found.verdict == "healthy: 1 of 2 endpoints used"
    reasons = [one.reason.name for one in found.endpoints]
    assert reasons == ["READY", "OTHER_ZONE", "DUPLICATE"]
    probes = [Probe("10.244.1.1:8080", ProbeResult.REFUSED, "why")]
    objects = (web(), slice_of(web(), near, far))
    refused = explained(*objects, zone="zone-a", probes=probes).verdict
    assert "10.244.1.1:8080 (why); hints leave zone zone-a only these, and 1 more to others; " in refused
    assert "hints" not in explained(*objects, zone="zone-c", probes=probes).verdict


def test_a_missing_service_gets_suggestions_of_similar_names() -> None:
    known = [ObjectKey("default", "web"), ObjectKey("shop", "api")]
    assert (
        "no Service default/wbe (did you mean default/web?), because"
        in explain_missing(ObjectKey("default", "wbe"), known, ()).verdict
    )
    assert (
        "no Service default/api (there is shop/api)" in explain_missing(ObjectKey("default", "api"), known, ()).verdict
    )


@pytest.mark.parametrize(
    "name",
    ["a b", "Web", "web_1", "-web", "we$b", "w" * 254],
    ids=["space", "capital", "underscore", "dash", "sign", "long"],
)
def test_an_impossible_service_name_is_reported(name: str) -> None:
    reported = explain_missing(ObjectKey("default", name), [ObjectKey("default", "web")], ()).verdict
    assert "because no Service can have that name: small letters, digits, dashes and dots" in reported
    assert "; write the name as kubectl get services --all-namespaces shows it" in reported
    assert "can have that name" not in explain_missing(ObjectKey("default", "web-1.x"), [], ()).verdict


def test_a_service_that_is_not_proxied_is_healthy() -> None:
    headless = Service(web().metadata, ServiceSpec(cluster_ip="None"))
    assert explained(headless).verdict.startswith("healthy: nothing to program, it is headless")
    named = Service(web().metadata, ServiceSpec(type="ExternalName", external_name="example.org"))
    assert explained(named).verdict == "healthy: nothing to program, it is another name for example.org"


def test_names_of_others_obey_no_terminal() -> None:
    found = explained(web(), slice_of(web(), HERE, port_name="\x1b[2J"))
    assert not any("\x1b" in line for line in lines_of(found, "here"))


def test_both_families_are_counted_by_address() -> None:
    service = web(None, *DUAL)
    six = make_slice(service, [make_endpoint("fd00:10:244:1::a", "node-a")], Family.IPV6)
    assert explained(service, slice_of(service, HERE), six).verdict == "healthy: 2 of 2 endpoints used"


@pytest.mark.parametrize(
    ("astray", "said"),
    [
        (ObjectKey("shop", "web"), True),
        (ObjectKey("default", "weeb"), True),
        (ObjectKey("default", "webb"), True),
        (ObjectKey("default", "database"), False),
        (ObjectKey("shop", "webb"), False),
    ],
)
def test_slices_that_are_meant_for_it_and_are_not_its_own_are_named(astray: ObjectKey, said: bool) -> None:
    found = explained(web(), astray=[ObjectKey("a", "other"), astray])
    assert found.verdict.startswith("broken: it has no endpoints")
    assert (f"there is one for a Service {astray} that does not exist" in found.verdict) is said
    assert ("kubernetes.io/service-name: web" in found.verdict) is said
    assert explained(web(), slice_of(web(), HERE), astray=[astray]).healthy
