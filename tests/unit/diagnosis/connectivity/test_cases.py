"""What is tried in which cluster, from where, and what must come of it."""

from nodeagent.diagnosis.connectivity.address_cases import address_cases
from nodeagent.diagnosis.connectivity.cases import Case, Column, Skipped
from nodeagent.diagnosis.connectivity.name_cases import name_cases
from nodeagent.diagnosis.connectivity.objects import BALANCER
from nodeagent.diagnosis.connectivity.policy_cases import policy_cases
from nodeagent.diagnosis.connectivity.stage import ClusterResolver, DeployedObjects
from nodeagent.model.addresses import Family
from tests.unit.diagnosis.connectivity.stages import BOTH_FAMILIES, stage


def everything(of: DeployedObjects) -> list[Case | Skipped]:
    return [*address_cases(of), *policy_cases(of), *name_cases(of)]


def cases(of: DeployedObjects, row: str) -> list[Case]:
    return [one for one in everything(of) if isinstance(one, Case) and one.row == row]


def in_short(found: list[Case]) -> set[tuple[str, str, str, str]]:
    """Column, source, host, expectation."""
    return {(one.column.value, one.source.pod, one.request.host, str(one.expected)) for one in found}


def test_cluster_ips_are_tried_from_every_pod_and_node_to_every_node() -> None:
    assert in_short(cases(stage(), "ClusterIP, TCP")) == {
        ("pod, same node", "client-1", "10.96.0.100", "server-1 answers"),
        ("pod, same node", "client-2", "10.96.0.101", "server-2 answers"),
        ("pod, other node", "client-2", "10.96.0.100", "server-1 answers"),
        ("pod, other node", "client-1", "10.96.0.101", "server-2 answers"),
        ("node", "host-1", "10.96.0.100", "server-1 answers"),
        ("node", "host-2", "10.96.0.100", "server-1 answers"),
        ("node", "host-1", "10.96.0.101", "server-2 answers"),
        ("node", "host-2", "10.96.0.101", "server-2 answers"),
    }


def test_a_node_port_leads_to_another_node_and_is_tried_from_outside() -> None:
    found = cases(stage(), "node port of n1, UDP")

    assert in_short(found) == {
        ("pod, same node", "client-1", "192.0.2.1", "server-2 answers"),
        ("pod, other node", "client-2", "192.0.2.1", "server-2 answers"),
        ("node", "host-1", "192.0.2.1", "server-2 answers"),
        ("node", "host-2", "192.0.2.1", "server-2 answers"),
        ("outside", "", "192.0.2.1", "server-2 answers"),
    }
    assert {(one.request.kind, one.request.port) for one in found} == {("udp", 31101)}
    assert {one.trace.node for one in found if one.trace} == {"n1"}, "its node translates it"


def test_from_outside_the_local_policy_keeps_to_its_node_and_to_the_source() -> None:
    outside = [one for one in cases(stage(), "node port of n2, policy Local") if one.column is Column.OUTSIDE]

    assert in_short(outside) == {("outside", "", "192.0.2.2", "server-2 answers and sees the client's own address")}


def test_a_local_policy_without_endpoint_expects_silence_and_is_tried_last() -> None:
    (found,) = cases(stage(), "node port of n2, policy Local, no endpoint there")

    assert str(found.expected) == "there is no answer, because no endpoint is on that node"
    assert found.late
    assert not cases(stage(), "node port of n1, policy Local, no endpoint there")


def test_a_pod_reaches_itself_and_the_internal_policy_keeps_to_the_node() -> None:
    assert in_short(cases(stage(), "ClusterIP, a pod to itself")) == {
        ("pod, same node", "server-1", "10.96.0.100", "server-1 answers"),
        ("pod, same node", "server-2", "10.96.0.101", "server-2 answers"),
    }
    assert {(one.source.node, str(one.expected)) for one in cases(stage(), "ClusterIP, internal policy Local")} == {
        ("n1", "server-1 answers"),
        ("n2", "server-2 answers"),
    }


def test_large_payloads_are_sent() -> None:
    assert {one.request.size for one in cases(stage(), "ClusterIP, TCP, 1 MiB")} == {1 << 20}
    assert {one.request.size for one in cases(stage(), "ClusterIP, UDP, 8 KiB")} == {8192}


def test_refusals_are_tried_with_both_protocols() -> None:
    found = cases(stage(), "ClusterIP, no endpoints: refused")

    assert {(one.request.kind, one.expected.refused) for one in found} == {("tcp", True), ("udp", True)}


def test_both_families_have_rows_of_their_own() -> None:
    found = {one.row for one in everything(stage(families=BOTH_FAMILIES))}

    assert {"ClusterIP, TCP, IPv4", "ClusterIP, TCP, IPv6", "name, full, IPv6"} <= found
    assert "ClusterIP, TCP" not in found
    places = {one.request.host for one in cases(stage(families=BOTH_FAMILIES), "ClusterIP, TCP, IPv6")}
    assert places == {"fd00:10:96::100", "fd00:10:96::101"}


def test_one_node_has_no_others_and_no_choice() -> None:
    found = everything(stage(1))

    assert Column.OTHER_NODE not in {one.column for one in found if isinstance(one, Case)}
    skipped = [one for one in found if isinstance(one, Skipped) and one.row == "ClusterIP, session affinity"]
    assert {one.reason for one in skipped} == {"one node has one endpoint"}
    assert {str(one.expected) for one in cases(stage(1), "node port of n1, TCP")} == {"server-1 answers"}


def test_a_machine_that_reaches_no_node_skips_its_column() -> None:
    reason = "this machine does not reach node n1"
    found = everything(stage(unreachable={Family.IPV4: reason}))

    assert Column.OUTSIDE not in {one.column for one in found if isinstance(one, Case)}
    skipped = {one.row for one in found if isinstance(one, Skipped) and one.reason == reason}
    assert {"node port of n1, TCP", "node port of n2, policy Local, no endpoint there"} <= skipped


def test_a_load_balancers_address_is_tried_from_outside_where_it_leads_to_a_node() -> None:
    def from_outside(of: DeployedObjects) -> list[Case]:
        return [one for one in cases(of, "load-balancer address") if one.column is Column.OUTSIDE]

    assert not from_outside(stage())
    assert {one.request.host for one in from_outside(stage(outer_is_routed=True))} == {"198.51.100.77"}


def test_a_service_that_the_cluster_refuses_is_skipped_with_its_message() -> None:
    found = [one for one in everything(stage(refused={BALANCER: "403: no"})) if one.row == "load-balancer address"]

    assert found == [Skipped("load-balancer address", column, "403: no") for column in Column]


def test_names_are_asked_in_every_form() -> None:
    hosts = {one.request.host for one in everything(stage()) if isinstance(one, Case) and one.row.startswith("name,")}

    assert hosts == {
        "10.96.0.10",
        *("headless.nodeagent-connectivity-test.svc.cluster.local.",),
        *(
            f"server-{number}{rest}"
            for number in range(2)
            for rest in (
                "",
                ".nodeagent-connectivity-test",
                ".nodeagent-connectivity-test.svc.cluster.local.",
            )
        ),
    }
    (headless,) = {one.expected for one in cases(stage(), "name, headless: every pod")}
    assert headless.addresses == {"10.244.1.1", "10.244.2.1"}


def test_names_are_skipped_where_pods_do_not_ask_cluster_dns() -> None:
    found = list(name_cases(stage(resolver=ClusterResolver("192.0.2.53"))))

    assert {type(one) for one in found} == {Skipped}
