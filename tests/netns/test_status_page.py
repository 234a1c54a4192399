"""The status page's document and answers: why a Service does not work is said in the words of `nodeagent explain`."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from nodeagent.model.objects import EndpointConditions
from tests.harness.cluster import HTTP, NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices, service_port
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

PAGE = "http://127.0.0.1:10249"
WRONG = {
    "half": "no slice has a port more/TCP",
    "sliceless": "it has no EndpointSlice",
    "empty": "its EndpointSlices are empty",
    "unready": "none of its 2 endpoints is ready",
    "portless": "no slice has a port http/TCP",
}
"""What is broken, and a part of why."""


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    cluster.world["web-0"].serve(8080)
    cluster.expose("healthy", *cluster_ips(1), pods=["web-0"])
    cluster.expose("empty", *cluster_ips(2))
    cluster.manifests.put(make_service("sliceless", *cluster_ips(3), ports=HTTP))
    place = [(cluster.world["web-0"].addresses, NODE)]
    unready = make_service("unready", *cluster_ips(4), ports=HTTP)
    for one in make_slices(unready, place, target_port=8080):
        endpoints = tuple(replace(each, conditions=EndpointConditions(ready=False)) for each in one.endpoints or ())
        cluster.manifests.put(replace(one, endpoints=endpoints))
    portless = make_service("portless", *cluster_ips(5), ports=HTTP)
    for one in make_slices(portless, place, target_port=8080):
        ports = tuple(replace(each, name="other") for each in one.ports or ())
        cluster.manifests.put(replace(one, ports=ports))
    both = (*HTTP, service_port(81, name="more"))
    half = make_service("half", *cluster_ips(6), ports=both)
    cluster.manifests.put(
        *make_slices(make_service("half", *cluster_ips(6), ports=HTTP), place, target_port=8080), half
    )
    names = make_service("kube-dns", *cluster_ips(7), ports=(service_port(53, name="dns"),))
    cluster.manifests.put(unready, portless, names)
    return cluster.start_agent(
        *WITH_POD_CIDRS, "--dns", "--dns-listen", ",".join(cluster_ips(7)), "--dns-upstreams", "127.0.0.1:9"
    )


def asked(cluster: Cluster, path: str, **query: str | list[str]) -> Any:
    url = f"{PAGE}{path}?{urlencode(query, doseq=True)}"
    return json.loads(cluster.world.run(NODE, ["curl", "-sSf", url]).stdout)


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_service_has_the_verdict_of_explain(cluster: Cluster, agent: AgentProcess, name: str) -> None:
    command = [*AGENT, "explain", f"default/{name}", "--no-probe", "-o", "json"]
    reported = json.loads(cluster.world.run(NODE, command, check=False).stdout)
    verdict, because = reported["verdict"], reported["findings"][0]["because"]
    assert WRONG[name] in because
    found = asked(cluster, "/api/reasons", name=f"default/{name}")
    assert found == {f"default/{name}": {"line": verdict, "because": because}}
    assert asked(cluster, "/api/service", name=f"default/{name}")["verdict"] == verdict


def test_many_are_asked_at_once_and_those_that_work_are_left_out(cluster: Cluster, agent: AgentProcess) -> None:
    names = [f"default/{name}" for name in ("healthy", "unknown", *WRONG)]
    found = asked(cluster, "/api/reasons", name=[*names, "", "/", "a/b/c"])
    assert set(found) == {f"default/{name}" for name in WRONG}
    assert asked(cluster, "/api/service", name="default/healthy")["verdict"] is None
    assert asked(cluster, "/api/reasons") == {}


def test_the_stream_counts_services_without_a_healthy_endpoint(cluster: Cluster, agent: AgentProcess) -> None:
    done = cluster.world.run(NODE, ["curl", "-sN", "--max-time", "3", f"{PAGE}/api/events"], check=False)
    news = json.loads(done.stdout.partition("\n")[0].removeprefix("data: "))
    assert news["unserved"] == len(WRONG)
    assert news["count"] == len(WRONG) + 2, "the node answers names itself, which need no endpoints"


def test_the_page_comes_whole_and_runs_no_script_but_its_own(cluster: Cluster, agent: AgentProcess) -> None:
    head, _, body = cluster.world.run(NODE, ["curl", "-sSi", f"{PAGE}/"]).stdout.partition("\n\n")
    assert "script-src 'sha256-" in head
    assert "unsafe" not in head
    assert body.rstrip().endswith("</html>")
    assert len(body) < 32768
