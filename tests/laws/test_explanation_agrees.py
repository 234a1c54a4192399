"""For any cluster, the endpoints that are explained as used are those that the translation sends connections to."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings

from nodeagent.diagnosis.explain.endpoint_reasons import USED, Account, Reason, account_endpoints
from nodeagent.model.addresses import Family, parse_address
from nodeagent.model.frontend import Frontend, Scope
from nodeagent.model.objects import LABEL_HEADLESS, EndpointSlice, Service, key_of
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.exposed_addresses import exposures, is_proxied
from nodeagent.proxy.translate.node_state import TranslationOptions, node_context
from nodeagent.proxy.translate.services import translate_service
from tests.harness.effort import examples
from tests.laws.semantics.clusters import HERE, Cluster, clusters

Used = dict[tuple[str, str, str, Scope], set[tuple[str, int]]]


def endpoints_used(accounts: tuple[Account, ...]) -> Used:
    """What the explanation says is used: family, port name, protocol and list → endpoints."""
    found: Used = defaultdict(set)
    for one in accounts:
        for scope, reason in ((Scope.CLUSTER, one.cluster), (Scope.LOCAL, one.local)):
            if reason in USED:
                assert one.port is not None
                place = (one.address, one.port)
                key = (one.family, one.service_port, one.protocol, scope)
                assert place not in found[key], "no endpoint is used twice"
                found[key].add(place)
    return found


def programmed(frontends: tuple[Frontend, ...]) -> Used:
    found: Used = defaultdict(set)
    for frontend in frontends:
        for route in (frontend.route, frontend.short_circuit):
            if route is not None:
                name = frontend.service_port
                key = (frontend.family.value, name.port, name.protocol.name, route.scope)
                found[key] |= {(backend.address, backend.port) for backend in route.backends}
    return found


def raw(one: EndpointSlice, account: Account) -> list[Any]:
    return [
        endpoint
        for endpoint in one.endpoints or ()
        if endpoint.addresses and parse_address(endpoint.addresses[0]) == account.address
    ]


def shares_an_address(service: Service, context: Context) -> bool:
    """Whether an address of the Service is of two kinds, one of which it is programmed as."""
    return any(
        len({one.cluster_ip, *one.external_ips, *one.load_balancer_ips})
        < 1 + len(one.external_ips) + len(one.load_balancer_ips)
        for one in exposures(service, key_of(service), context, []).values()
    )


@given(cluster=clusters())
@settings(max_examples=examples(60), deadline=None)
def test_endpoints_reported_as_used_are_used(cluster: Cluster) -> None:
    context = node_context(cluster.node, TranslationOptions(node_name=HERE, external_ips_enabled=cluster.external_ips))
    for key, service in cluster.services.items():
        slices = cluster.slices_of(key)
        accounts = account_endpoints(service, slices, context)
        state = translate_service(service, slices, context)
        expected = {name: endpoints for name, endpoints in programmed(state.frontends).items() if endpoints}
        explained = endpoints_used(accounts)
        duplicates = any(problem.reason == "DuplicatePort" for problem in state.problems)
        if duplicates or shares_an_address(service, context):
            # A port without an address left is a matter of the addresses, not of its endpoints.
            explained = {name: endpoints for name, endpoints in explained.items() if name in expected}
        assert explained == expected


@given(cluster=clusters())
@settings(max_examples=examples(40), deadline=None)
def test_every_endpoint_is_listed_with_a_true_reason(cluster: Cluster) -> None:
    context = node_context(cluster.node, TranslationOptions(node_name=HERE))
    for key, service in cluster.services.items():
        slices = cluster.slices_of(key)
        accounts = account_endpoints(service, slices, context)
        if not is_proxied(service):
            assert accounts == ()
            continue
        for one in slices:
            of_slice = [account for account in accounts if account.slice == str(key_of(one))]
            assert len(of_slice) >= len(one.endpoints or ())
            for account in of_slice:
                holds(account, one, context.node_name, context.zone)


def holds(account: Account, one: EndpointSlice, node: str, zone: str | None) -> None:
    """The reason is one that the objects themselves show."""
    entries = raw(one, account)
    conditions = [entry.conditions for entry in entries]
    for reason in (account.cluster, account.local):
        match reason:
            case Reason.READY:
                assert any(each is None or each.ready is not False for each in conditions)
            case Reason.NOT_READY:
                assert any(each and each.ready is False and not each.terminating for each in conditions)
            case Reason.DRAINING | Reason.OTHERS_READY:
                assert any(each and each.terminating and each.serving is not False for each in conditions)
            case Reason.GONE:
                assert any(each and each.terminating and each.serving is False for each in conditions)
            case Reason.NOT_LOCAL:
                assert any(entry.node_name != node for entry in entries)
            case Reason.OTHER_ZONE:
                assert any(zone not in [hint.name for hint in entry.hints.for_zones or ()] for entry in entries)
            case Reason.OTHER_NODE:
                assert any(node not in [hint.name for hint in entry.hints.for_nodes or ()] for entry in entries)
            case Reason.UNMATCHED_PORT:
                assert account.port is None
            case Reason.WRONG_FAMILY:
                assert account.family not in {family.value for family in Family} or account.port is None
            case Reason.HEADLESS_SLICE:
                assert LABEL_HEADLESS in (one.metadata.labels or {})
            case Reason.NO_ADDRESS:
                assert not entries or account.port is None
            case _:
                assert reason in (None, Reason.DUPLICATE)


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.name)
def test_every_reason_has_words_of_its_own(reason: Reason) -> None:
    assert [each.value for each in Reason].count(reason.value) == 1
