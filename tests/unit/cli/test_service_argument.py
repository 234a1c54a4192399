"""A Service is named as kubectl names it, by its DNS name, by its address or by a node port."""

import pytest

from nodeagent.cli.exit_codes import Failure
from nodeagent.cli.service_argument import ServiceArgument, parse_service
from nodeagent.model.names import ObjectKey

WEB, SHOP = ObjectKey("default", "web"), ObjectKey("shop", "web")


@pytest.mark.parametrize(
    ("text", "namespace", "expected"),
    [
        ("web", None, ServiceArgument(WEB)),
        ("web", "shop", ServiceArgument(SHOP)),
        ("shop/web", None, ServiceArgument(SHOP)),
        ("shop/web", "shop", ServiceArgument(SHOP)),
        ("svc/web", None, ServiceArgument(WEB)),
        ("svc/web", "shop", ServiceArgument(SHOP)),
        ("service/web:https", "shop", ServiceArgument(SHOP, "https")),
        ("services/web", None, ServiceArgument(WEB)),
        ("web.shop.svc", None, ServiceArgument(SHOP)),
        ("web.shop.svc.cluster.local:80", None, ServiceArgument(SHOP, "80")),
        ("web.shop.svc.cluster.local.", None, ServiceArgument(SHOP)),
        ("10.96.0.10", None, ServiceArgument(address="10.96.0.10")),
        ("10.96.0.10:80", None, ServiceArgument(address="10.96.0.10", port="80")),
        ("fd00::0a", None, ServiceArgument(address="fd00::a")),
        ("[fd00::a]:80", None, ServiceArgument(address="fd00::a", port="80")),
        ("30080", None, ServiceArgument(node_port=30080)),
    ],
)
def test_names(text: str, namespace: str | None, expected: ServiceArgument) -> None:
    assert parse_service(text, namespace) == expected


@pytest.mark.parametrize("text", ["", "/web", "a/b/c", "shop/"])
def test_invalid_names_are_refused(text: str) -> None:
    with pytest.raises(Failure, match="is not a Service"):
        parse_service(text)


def test_two_namespaces_are_one_too_many() -> None:
    with pytest.raises(Failure, match="is of namespace shop, and --namespace is other"):
        parse_service("shop/web", "other")
