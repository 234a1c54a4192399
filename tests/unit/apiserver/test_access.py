"""What each role may do."""

import pytest

from nodeagent.apiserver.api.authorization import Role, User, authorize, role_of
from nodeagent.kinds.catalog import rows
from nodeagent.kinds.description.status import ApiError

AGENT = User("node-a", Role.AGENT)


def may(user: User, verb: str, resource: str, name: str = "", part: str = "") -> bool:
    row = next((row for row in rows() if row.plural == resource), None)
    try:
        authorize(
            user, verb, "/x", resource, "default", name, subresource=part, confidential=bool(row and row.confidential)
        )
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("resource", ["services", "endpointslices", "endpoints", "nodes", "servicecidrs", "namespaces"])
def test_an_agent_looks_at_what_it_follows_and_changes_nothing_of_it(resource: str) -> None:
    assert all(may(AGENT, verb, resource) for verb in ("get", "list", "watch"))
    for verb in ("create", "update", "patch", "delete", "deletecollection"):
        assert not may(AGENT, verb, resource, "a")
        assert not may(AGENT, verb, resource, "a", "status")


@pytest.mark.parametrize("verb", ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"])
def test_an_agent_has_nothing_to_do_with_secrets_and_accounts(verb: str) -> None:
    for resource in ("secrets", "configmaps", "serviceaccounts", "ipaddresses"):
        assert not may(AGENT, verb, resource, "a")
    assert not may(AGENT, verb, "serviceaccounts", "a", "token")


def test_an_agent_writes_events_and_its_own_lease() -> None:
    assert may(AGENT, "create", "events")
    assert may(AGENT, "patch", "events", "a")
    assert not any(may(AGENT, verb, "events", "a") for verb in ("get", "list", "update", "delete"))
    assert may(AGENT, "create", "leases")
    assert all(may(AGENT, verb, "leases", "node-a") for verb in ("get", "update", "patch"))
    assert not any(may(AGENT, verb, "leases", "node-b") for verb in ("get", "update", "patch", "delete"))
    assert not may(AGENT, "delete", "leases", "node-a")


def test_the_strongest_group_counts() -> None:
    assert role_of(["nodeagent:readers", "nodeagent:agents"]) is Role.AGENT
    assert role_of(["nodeagent:agents", "system:masters"]) is Role.ADMIN
    assert role_of(["nodeagent:agent"]) is Role.NOBODY
