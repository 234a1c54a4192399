"""The translator tells what changed, and only that."""

from collections.abc import Callable, Collection
from typing import Any, ClassVar

import msgspec
import pytest

from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, ServiceCIDR, key_of
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service, with_endpoints_of
from nodeagent.proxy.translate.translator import Translator

ServiceBuilder = Callable[..., Service]
SliceBuilder = Callable[..., EndpointSlice]

WEB = ObjectKey("default", "web")


class Objects:
    """A snapshot that counts how often slices are asked for."""

    node = None
    service_cidrs: Collection[ServiceCIDR] = ()

    def __init__(self, *services: Service, slices: Collection[EndpointSlice] = ()) -> None:
        self.services = {key_of(service): service for service in services}
        self.slices = slices
        self.reads = 0

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        self.reads += 1
        return self.slices if service == WEB else ()


def test_the_first_update_returns_every_service(service: ServiceBuilder, context: Context) -> None:
    translator = Translator()
    changed = translator.update(Objects(service()), None, context)
    assert list(changed) == [WEB]
    assert changed == translator.states


def test_an_unchanged_service_is_not_in_the_answer(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    translator = Translator()
    translator.update(Objects(service(), slices=[endpoint_slice("10.0.0.1")]), None, context)
    again = Objects(service(), slices=[endpoint_slice("10.0.0.1")])
    assert translator.update(again, [WEB], context) == {}
    assert translator.update(again, None, context) == {}


def test_a_service_whose_slices_changed_is_what_a_new_translation_makes(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    exposed = {"externalIPs": ["198.51.100.1"], "type": "NodePort", "externalTrafficPolicy": "Local"}
    for one in (service(), service(**exposed), service(internalTrafficPolicy="Local")):
        before = translate_service(one, [endpoint_slice("10.0.0.1")], context)
        for slices in ([], [endpoint_slice("10.0.0.2")], [endpoint_slice("10.0.0.1", "10.0.0.3@here")]):
            made = with_endpoints_of(before, one, slices, context)
            assert made == translate_service(one, slices, context)


def test_a_service_with_a_problem_is_translated_anew(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    wrong, right = [endpoint_slice("127.0.0.1")], [endpoint_slice("10.0.0.1")]
    one = service()
    assert with_endpoints_of(translate_service(one, right, context), one, wrong, context) is None
    assert with_endpoints_of(translate_service(one, wrong, context), one, right, context) is None


def test_a_change_that_makes_no_difference_here_is_not_in_the_answer(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    translator = Translator()
    translator.update(Objects(service(), slices=[endpoint_slice("10.0.0.1")]), None, context)
    renamed = Objects(service(), slices=[endpoint_slice("10.0.0.1", name="web-2")])
    assert translator.update(renamed, [WEB], context) == {}


def test_only_dirty_services_are_read(service: ServiceBuilder, context: Context) -> None:
    objects = Objects(service(), *[service(f"s{n}", clusterIP=f"10.96.1.{n}") for n in range(20)])
    translator = Translator()
    translator.update(objects, None, context)
    objects.reads = 0
    translator.update(objects, [WEB], context)
    assert objects.reads == 1


def test_a_removed_service_is_gone_and_so_is_one_that_is_no_longer_proxied(
    service: ServiceBuilder, context: Context
) -> None:
    translator = Translator()
    translator.update(Objects(service(), service("db", clusterIP="10.96.0.11")), None, context)
    headless = Objects(service(clusterIP="None"), service("db", clusterIP="10.96.0.11"))
    assert translator.update(headless, [WEB], context) == {WEB: None}
    assert translator.update(Objects(), None, context) == {ObjectKey("default", "db"): None}
    assert translator.states == {}


def test_a_dirty_key_of_which_nothing_is_known_changes_nothing(context: Context) -> None:
    assert Translator().update(Objects(), [WEB], context) == {}


def test_a_changed_context_reaches_services_that_are_not_dirty(
    service: ServiceBuilder, endpoint_slice: SliceBuilder, context: Context
) -> None:
    objects = Objects(
        service(), service("db", clusterIP="10.96.0.11"), slices=[endpoint_slice("10.0.0.1@here", "10.0.0.2@there")]
    )
    translator = Translator()
    translator.update(objects, None, context)
    moved = msgspec.structs.replace(context, node_name="there")
    assert list(translator.update(objects, (), moved)) == [WEB]


ADDED_ADDRESS = {"node_addresses": ("192.168.0.3", "2001:db8::2")}
OTHER_ZONE = {"zone": "zone-b"}


@pytest.mark.parametrize(
    ("changed", "translated"),
    [
        pytest.param(ADDED_ADDRESS, {"ranges"}, id="another address"),
        pytest.param(OTHER_ZONE, {"hints"}, id="another zone"),
        pytest.param({**ADDED_ADDRESS, **OTHER_ZONE}, {"ranges", "hints"}, id="both"),
        pytest.param({"external_ips_enabled": False}, {"plain", "ranges", "hints"}, id="what concerns all"),
    ],
)
def test_a_changed_node_is_looked_at_again_only_by_services_that_depend_on_what_changed(
    service: ServiceBuilder,
    endpoint_slice: SliceBuilder,
    context: Context,
    changed: dict[str, Any],
    translated: set[str],
) -> None:
    class Counted(Objects):
        read: ClassVar[set[str]] = set()

        def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
            self.read.add(service.name)
            return [hinted] if service.name == "hints" else ()

    hinted = endpoint_slice({"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "zone-a"}]}})
    objects = Counted(
        service("plain", clusterIP="10.96.0.1"),
        service("hints", clusterIP="10.96.0.2"),
        service("ranges", clusterIP="10.96.0.3", ingress=["1.2.3.4"], loadBalancerSourceRanges=["192.168.0.0/24"]),
    )
    translator = Translator()
    translator.update(objects, None, context)
    later = msgspec.structs.replace(context, **changed)
    assert {key.name for key in translator.outdated_by(later)} == translated

    objects.read.clear()
    translator.update(objects, (), later)

    assert objects.read == translated
    fresh = Translator()
    fresh.update(objects, None, later)
    assert translator.states == fresh.states
    assert not translator.outdated_by(later)


def test_a_conflict_changes_services_that_are_not_dirty(service: ServiceBuilder, context: Context) -> None:
    old = service("old", clusterIP="10.96.0.11", externalIPs=["192.0.2.1"], created="2020-01-01T00:00:00Z")
    young = service(externalIPs=["192.0.2.1"], created="2024-01-01T00:00:00Z")
    translator = Translator()
    translator.update(Objects(young), None, context)
    assert set(translator.update(Objects(young, old), [key_of(old)], context)) == {WEB, key_of(old)}
    assert [problem.reason for problem in translator.states[WEB].problems] == ["AddressConflict"]
    translator.update(Objects(young), [key_of(old)], context)
    assert translator.states[WEB].problems == ()


def test_a_service_with_nothing_but_a_problem_is_a_state(service: ServiceBuilder, context: Context) -> None:
    translator = Translator()
    translator.update(Objects(service(clusterIP="bogus")), None, context)
    assert [problem.reason for problem in translator.states[WEB].problems] == ["InvalidAddress"]


class Unreadable(Objects):
    """A snapshot that fails in the middle of an update."""

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        if service.name == "broken":
            raise LookupError(service.name)
        return super().slices_of(service)


def test_an_update_that_failed_half_way_is_completed_by_the_next(service: ServiceBuilder, context: Context) -> None:
    both = [service(), service("broken", clusterIP="10.96.0.11")]
    translator = Translator()
    with pytest.raises(LookupError):
        translator.update(Unreadable(*both), None, context)
    assert set(translator.update(Objects(*both), (), context)) == {WEB, ObjectKey("default", "broken")}


def test_a_service_that_cannot_be_translated_is_a_problem_and_the_others_are_served(
    service: ServiceBuilder, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever defect of the translation an object meets, the pass goes on without that object."""

    def defective(obj: Service, *rest: Any) -> ServiceState:
        if obj.metadata.name == "bad":
            raise OverflowError("no such port")
        return translate_service(obj, *rest)

    monkeypatch.setattr("nodeagent.proxy.translate.translator.translate_service", defective)
    translator = Translator()
    bad = ObjectKey("default", "bad")
    changed = translator.update(Objects(service(), service(name="bad", cluster_ip="10.96.0.99")), None, context)
    web, left_out = changed[WEB], changed[bad]
    assert web is not None
    assert web.frontends
    assert left_out is not None
    (problem,) = left_out.problems
    assert (left_out.frontends, left_out.cluster_ips) == ((), ())
    assert (problem.subject, problem.reason) == ("Service default/bad", "TranslationFailed")
    assert "OverflowError: no such port (defective, line " in problem.detail
